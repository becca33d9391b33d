"""Access for clients that reach only this service's gRPC port: streams to topic owners, and REST over gRPC."""
