"""Notes: copies of the records that change rarely, on storage nodes, so that a lost ZooKeeper can be rebuilt."""
