"""Publishing by HTTP under idempotency keys."""
