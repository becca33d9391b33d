"""Chains: a list of ledgers under one record. A topic's log, its ack log and its snapshots are chains."""
