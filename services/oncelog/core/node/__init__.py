"""The decisions of a storage node: which entries and fences it accepts, and when it answers."""
