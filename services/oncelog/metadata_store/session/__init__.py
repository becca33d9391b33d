"""The session with ZooKeeper: its meaning, its connection, watches and paths."""
