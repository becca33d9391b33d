"""Copies of topics in another cluster: copying, consumers and producers that move, what is there."""
