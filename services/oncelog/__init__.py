"""Oncelog: a replicated log for messages in which every message takes effect once."""
