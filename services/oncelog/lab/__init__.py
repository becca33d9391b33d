"""What tries a cluster: the demonstration, the benchmarks, and faults under load. Part of the extra oncelog[lab]."""
