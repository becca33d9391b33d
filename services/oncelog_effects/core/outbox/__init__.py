"""The outbox relay: what it concludes from the rows of an outbox and from the log. No I/O."""
