"""The ack log: changes, format, fold, ack sets."""
