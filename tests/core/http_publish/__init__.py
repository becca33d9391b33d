"""One publish with an idempotency key."""
