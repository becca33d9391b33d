"""Placement: which topic owner serves a topic, also after the owner is lost, and how topics are balanced."""
