"""Producers at the owner: deduplication, sessions, openings."""
