"""What a client of Pulsar is answered."""
