"""Spark proves the promises of the log: a real file through source and sink, while everything is killed."""
