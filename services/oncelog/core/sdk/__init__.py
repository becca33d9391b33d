"""The client's half of the protocols: how an owner is reached, producers, and consumers."""
