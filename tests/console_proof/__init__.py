"""Proofs of the console that take minutes: `make console-proof`, and pictures of its pages."""
