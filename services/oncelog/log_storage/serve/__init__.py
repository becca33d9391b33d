"""What a storage node answers: the journal, reads, its gRPC service and its registration."""
