"""Publishing over HTTP with idempotency keys: from a key to sequence ids, and the state of the keys in Redis."""
