"""The ledger client: writes, reads and recovers ledgers on storage nodes, whose addresses its users supply."""
