"""Programs of functions with effects: how they fail, what they wait for, and their command."""
