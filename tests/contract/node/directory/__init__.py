"""The directory of a storage node: journal, segments, index."""
