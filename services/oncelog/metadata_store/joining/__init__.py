"""How a process joins its cluster, and notices a ZooKeeper that has lost data."""
