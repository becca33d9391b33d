"""Records in ZooKeeper: reading, compare-and-set, blocks of ids."""
