"""Producers: from a value to a durable result."""
