"""The pure cores of the doors: what a client is answered."""
