"""A topic with a million ledgers: how long its owner takes."""
