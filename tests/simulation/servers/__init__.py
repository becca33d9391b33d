"""The simulated processes and what they keep: owners, storage nodes, metadata replicas, disks, the store."""
