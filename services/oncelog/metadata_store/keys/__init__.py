"""Idempotency keys, in Redis."""
