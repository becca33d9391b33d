"""The service of lookup, placement and administration."""
