"""Records that several processes change: how a core reads one, and writes it by compare-and-set."""
