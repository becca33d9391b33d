"""The client of storage nodes, over real gRPC."""
