"""Producers of the SDK."""
