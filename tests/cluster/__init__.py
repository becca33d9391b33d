"""Real processes, real ZooKeeper, real signals; until() is the only function that waits."""
