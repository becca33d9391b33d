"""Which messages a search wants, and where it looks for one sequence id."""
