"""Bytes: batches, columns, entries, message ids."""
