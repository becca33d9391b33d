"""The source: ranges, offsets, columns."""
