"""What a door decides about clients of Kafka."""
