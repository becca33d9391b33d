"""A list of ledgers under one record: writing and ownership."""
