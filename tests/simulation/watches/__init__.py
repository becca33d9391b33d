"""The oracles that look at a run after each step."""
