"""Which tests depend on what has changed: `make test-changed` runs them."""
