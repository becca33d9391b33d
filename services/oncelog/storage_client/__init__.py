"""The client of storage nodes: appends, reads and recovers ledgers; its users supply the nodes' addresses."""
