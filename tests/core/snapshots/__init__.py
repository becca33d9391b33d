"""Snapshots of producers and subscriptions."""
