"""One test for a fake and for the real thing: ZooKeeper, disk, Redis."""
