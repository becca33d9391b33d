"""The faults of a run: which ones, how often, and the histories that they are to bring about."""
