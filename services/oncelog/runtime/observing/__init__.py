"""What a service remembers of itself, and writes down for others: events, and the audit log."""
