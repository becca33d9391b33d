"""Standalone clusters and the starts of single processes."""
