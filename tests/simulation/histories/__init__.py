"""Runs that look for one history each, and the hazards of which each is one."""
