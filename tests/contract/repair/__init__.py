"""Repair of ledgers, and removal of storage nodes, by metadata services."""
