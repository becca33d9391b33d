"""The metadata service: coordination of the cluster, and its REST and HTTP publish interface."""
