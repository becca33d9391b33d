"""The audit: whole topics are read in ranges, in parallel on Spark, and checked from small summaries (`verify`)."""
