"""Certificates: making them, the forms of their keys, and whether a peer would accept one."""
