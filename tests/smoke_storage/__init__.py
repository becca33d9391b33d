"""Storage nodes removed and their volumes lost under load, on the current kube context: `make smoke-storage`, not the
default tests."""
