"""One topic at its owner: the takeover, then serving producers."""
