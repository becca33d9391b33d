"""The ledger client: writes, reads and recovers ledgers on storage nodes over gRPC."""
