"""Readers: the messages of a topic in order, without a subscription."""
