"""Oracles that only tests use: models of appends, reads, acknowledgements and consumers."""
