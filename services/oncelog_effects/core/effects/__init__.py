"""Effects that happen once in a store: what a consumer concludes from the log and from the store. No I/O."""
