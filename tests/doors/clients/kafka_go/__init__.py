"""Go's clients of Kafka."""
