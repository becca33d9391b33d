"""Repair: what a ledger needs, the queue, one repair."""
