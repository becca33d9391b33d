"""Metadata services, ZooKeeper, and which owner serves a topic."""
