"""What happens once beyond the log: effects in stores, the outbox relay, the mirror."""
