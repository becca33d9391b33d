"""Subscriptions at a topic owner, with its streams to consumers."""
