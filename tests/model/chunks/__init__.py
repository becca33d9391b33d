"""The model of messages in chunks."""
