"""The shell of the topic cores: performs their effects on ZooKeeper and storage nodes."""
