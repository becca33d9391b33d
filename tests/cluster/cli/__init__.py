"""The command line against real clusters."""
