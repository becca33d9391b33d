"""Java's client of Kafka, of today and of its former major version, and the tools that come with it."""
