"""Tests of the eras of a cluster: their roots in ZooKeeper, and the processes of a former one."""
