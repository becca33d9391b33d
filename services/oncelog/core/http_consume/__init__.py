"""Consuming over HTTP: what a session has given out, which id it knows, and when it ends."""
