"""Metadata replicas: placement, repair, and restores of a lost store."""
