"""Publishing with an idempotency key under random faults: real processes over a simulated Redis and a simulated log."""
