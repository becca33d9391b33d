"""The audit: whole topics read in ranges, in parallel on Spark, and judged from small summaries (`verify`)."""
