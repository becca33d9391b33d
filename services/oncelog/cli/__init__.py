"""The command line, oncelog."""
