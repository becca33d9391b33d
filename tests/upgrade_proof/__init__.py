"""Upgrades and roll-backs under load, with the services of the former version beside those of this tree."""
