"""Which process owns a topic, and how one that does not is stopped."""
