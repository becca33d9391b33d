"""The bytes of Kafka's protocol, and connections that speak it."""
