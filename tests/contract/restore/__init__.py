"""Restores of an emptied ZooKeeper, drills, and the rebuilding of one record, over storage nodes on real sockets."""
