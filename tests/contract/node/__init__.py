"""The storage node: its directory, its service, and its work in the background."""
