"""The planted bugs: each removes one rule, and a run must find it."""
