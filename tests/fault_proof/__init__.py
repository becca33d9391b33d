"""Storage faults with real processes: `python -m tests.fault_proof`, or `make fault-proof`."""
