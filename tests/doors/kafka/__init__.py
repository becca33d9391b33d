"""Connections of Kafka's clients at a door."""
