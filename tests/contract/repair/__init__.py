"""Repair and deletion of ledgers by metadata services."""
