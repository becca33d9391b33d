"""Storage nodes: their directories, starts, and what they tell a restore."""
