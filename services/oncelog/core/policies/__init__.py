"""The policies of a topic: what they allow, as pure functions of its state."""
