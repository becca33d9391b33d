"""One topic at its owner: the takeover, then serving. The hub that gives events to the other rooms."""
