"""Compaction: publish the last message of each key of a topic to a new topic (`job` has the rules)."""
