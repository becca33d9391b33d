"""The stores over ZooKeeper and Redis: the same tests for a fake and the real thing."""
