"""The pipeline: its decisions alone, then PySpark against a real cluster."""
