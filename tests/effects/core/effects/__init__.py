"""Effects that happen once: what is concluded from log and store."""
