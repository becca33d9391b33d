"""Consumers and readers of the SDK."""
