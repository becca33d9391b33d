"""Routes for a lost ZooKeeper: copies of its records, restores, the drill."""
