"""The storage node: fences, adds, limbo, reviews."""
