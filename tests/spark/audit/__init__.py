"""The audit of a topic."""
