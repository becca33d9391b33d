"""Topics as Parquet files, each message in exactly one file that a manifest names (`run` has the rules)."""
