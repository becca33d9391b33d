"""Retention: what of a topic's log may go, which messages expire, and when publishing is held back."""
