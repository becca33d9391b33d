"""Messages in chunks at a door, in front of a cluster in memory."""
