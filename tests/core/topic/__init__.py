"""The hub of a topic: takeover, replay, serving."""
