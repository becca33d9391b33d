"""Codecs between messages of the wire and core values, one module a service or a kind of call."""
