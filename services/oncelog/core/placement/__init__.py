"""Placement: which owner serves a topic, when an owner counts as dead, and which topics move."""
