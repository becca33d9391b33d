"""The models of a lost ZooKeeper: notes of its records, and restores."""
