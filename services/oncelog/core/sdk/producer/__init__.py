"""The client's half of a producer: sessions, sequence ids, pending batches, routing."""
