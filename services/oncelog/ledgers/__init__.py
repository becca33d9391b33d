"""The ledger client: writes, reads and recovers ledgers on storage nodes. Addresses are given to it."""
