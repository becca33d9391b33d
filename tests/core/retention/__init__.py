"""Trim, TTL, quotas, and pages of ledgers."""
