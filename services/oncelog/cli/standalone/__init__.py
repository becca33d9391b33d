"""A whole cluster on one machine: real ZooKeeper, storage nodes, topic owners and metadata as supervised children."""
