"""Reading topics: Spark's readers, what a query reads of the log, and the log's entries as columns of Arrow."""
