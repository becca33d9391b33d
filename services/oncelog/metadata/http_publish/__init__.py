"""Publishing over HTTP, under a producer name or with an idempotency key (`core.http_publish`)."""
