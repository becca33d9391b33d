"""The owner of a topic: placement, suspicion, balance."""
