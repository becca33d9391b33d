"""Openings for the clients of gateways: who goes on, and who holds a name."""
