"""The records in ZooKeeper, one store for each kind."""
