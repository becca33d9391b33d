"""The chart as users meet it, on the cluster of the current kube context: `make smoke`, not the default tests."""
