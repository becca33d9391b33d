"""Consumer groups with client libraries of Kafka."""
