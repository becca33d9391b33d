"""Searches of a log."""
