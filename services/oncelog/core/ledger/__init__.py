"""A topic's ledgers: the managed ledger, writing, recovery, quorums."""
