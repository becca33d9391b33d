"""The workload: clients that publish and read while faults happen, and the check of everything they were told."""
