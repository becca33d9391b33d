"""`oncelog admin backup`: copies of ZooKeeper's records, and what is done with them when ZooKeeper is lost."""
