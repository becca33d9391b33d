"""Writing rows to topics, each once.

writer                 what Spark calls
position_*             mode=position: tasks publish rows under their position in the source
batch_*                mode=batch: tasks stage rows, the driver's commit publishes them
log, journal_records   connections, journals and their records
rows, row_digest, routing, names, options, run_order
"""
