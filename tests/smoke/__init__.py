"""The installed chart in the current kube context: run by `make smoke`, not by the default tests."""
