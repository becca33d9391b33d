"""Doors and clients of Pulsar that publish through them, their oracles, and what they send."""
