"""Tests of the copies of ZooKeeper's records: their file, the walk, and where they are kept."""
