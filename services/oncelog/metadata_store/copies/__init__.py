"""Copies of all records in ZooKeeper: their file format, how they are made, and where they are kept."""
