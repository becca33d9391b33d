"""Consumer groups as clients of Kafka know them: who is a member, which generation is current, and who leads it."""
