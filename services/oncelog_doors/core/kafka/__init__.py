"""What a client of Kafka is answered."""
