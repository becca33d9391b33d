"""The workload: clients that publish and read while faults happen, and the check of all answers that they got."""
