"""Restore of a lost ZooKeeper: its steps, the drill, the rebuilding of one record, and the copies of records."""
