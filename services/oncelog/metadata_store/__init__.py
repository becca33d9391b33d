"""What ZooKeeper and Redis hold, in typed form. No other package imports kazoo or redis."""
