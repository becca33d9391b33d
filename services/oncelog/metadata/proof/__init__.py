"""The online proof of a topic: what a replica reads, compares and keeps as a verdict."""
