"""Which batches a topic has stored: the table, its snapshot and its cursor."""
