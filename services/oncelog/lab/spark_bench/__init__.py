"""`oncelog bench spark`: source and sink against Spark's own formats, in the same sessions of the same run."""
