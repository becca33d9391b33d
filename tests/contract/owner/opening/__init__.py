"""Openings of producers at a real owner."""
