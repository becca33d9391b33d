"""Pulsar's binary protocol: its bytes, cut, damaged and hostile."""
