"""Publishing over HTTP: under producer names, and with idempotency keys. `routes` says what, `core.idempotency` how."""
