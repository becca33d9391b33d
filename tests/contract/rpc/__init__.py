"""Codecs, channels and servers."""
