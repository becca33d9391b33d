"""The client's halves: producer and consumer sessions."""
