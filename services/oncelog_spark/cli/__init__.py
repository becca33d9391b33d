"""`oncelog pipeline …`: jobs over whole topics, on Spark."""
