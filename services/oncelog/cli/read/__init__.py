"""`oncelog read`: prints the messages of a topic."""
