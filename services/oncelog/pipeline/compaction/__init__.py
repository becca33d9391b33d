"""The last value of each key of a topic, in a topic of their own (`job` has the rules)."""
