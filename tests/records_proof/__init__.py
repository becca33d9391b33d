"""`python -m tests.records_proof`: ZooKeeper is lost in many ways below a cluster under load, and restored."""
