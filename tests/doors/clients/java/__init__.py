"""Java clients of Pulsar: of today, and with the API of its first versions."""
