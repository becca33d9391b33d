"""Topic owners: the shell of a topic, its requests to storage nodes, and proofs of ownership."""
