"""The proof against Pulsar's rule: its parts. `doors/clients` has rows of it with a real client."""
