"""Restoring a lost ZooKeeper: the steps of a restore, the drill, and the rebuilding of one record."""
