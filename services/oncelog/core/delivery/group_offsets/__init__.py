"""Offsets that groups of gateways' clients commit: each is the position of the subscription with the group's name."""
