"""The directory of a storage node: segments, index, identity, and what a start finds in them."""
