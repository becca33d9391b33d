"""What is stored and sent: batches, entries, records, message ids."""
