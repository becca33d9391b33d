"""Consumers: from a delivery to a durable acknowledgement."""
