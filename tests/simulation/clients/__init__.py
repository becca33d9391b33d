"""What uses a simulated cluster, except consumers: producers, readers, strangers, and what they send."""
