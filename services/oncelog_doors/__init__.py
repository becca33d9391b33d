"""Doors: gateways for clients of other systems, which publish and read here. A distribution of its own."""
