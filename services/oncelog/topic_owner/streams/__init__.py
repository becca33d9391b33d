"""What clients and metadata services ask of an owner: its gRPC services and their streams."""
