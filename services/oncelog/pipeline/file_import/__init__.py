"""Parquet and CSV files as messages of a topic, each row once (`records` has the rules)."""
