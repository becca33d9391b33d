"""Typed stores over ZooKeeper and Redis. No other package imports kazoo or redis."""
