"""The chart and the images, without a Kubernetes cluster."""
