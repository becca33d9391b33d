"""Snapshots: bases and deltas of the producers and of the acknowledgements, so that a takeover reads little."""
