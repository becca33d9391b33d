"""The SDK against a fake cluster, over real gRPC."""
