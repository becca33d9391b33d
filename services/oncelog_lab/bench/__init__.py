"""What users run to measure a cluster, as ratios to the limits of the machine."""
