"""Jobs on Spark beside the release, on the current kube context: `make smoke-spark`, not the default tests."""
