"""Decisions through ZooKeeper: which owner serves a topic, who owns its record, and how ids are claimed."""
