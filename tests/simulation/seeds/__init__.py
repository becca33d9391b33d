"""Which seeds are new, and what of a failing one is needed."""
