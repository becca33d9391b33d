"""The client's half: sessions, sequence ids, pending batches, routing."""
