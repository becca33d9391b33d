"""Decides, as `oncelog.core` does: what a client of another system is answered. No I/O, clock or randomness."""
