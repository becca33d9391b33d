"""Kafka's half of the proof: its histories, its rule, and its clients."""
