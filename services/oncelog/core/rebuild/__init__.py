"""Rebuilding the records in ZooKeeper from what storage nodes hold: heads, notes and copies. Pure."""
