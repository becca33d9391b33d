"""Import: publish the rows of Parquet and CSV files to a topic, each row once (`records` has the rules)."""
