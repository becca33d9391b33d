"""`oncelog check`: checks an installed cluster in a few seconds."""
