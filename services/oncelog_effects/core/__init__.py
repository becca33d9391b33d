"""Decides, as `oncelog.core` does: the order of effects, and the relay of an outbox. No I/O, clock or randomness."""
