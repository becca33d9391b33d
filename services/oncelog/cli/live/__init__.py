"""`oncelog lag` and `oncelog top`: what a cluster does now, at the terminal."""
