"""Spark proves the log's guarantees: a real file goes through source and sink, while processes are killed."""
