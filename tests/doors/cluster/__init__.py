"""A door in front of a cluster: what it gives the SDK, and the program with real processes."""
