"""`oncelog bench spark`: the source and sink for Spark against Spark's own formats, in the same sessions."""
