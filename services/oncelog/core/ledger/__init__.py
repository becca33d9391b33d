"""The ledgers of a topic: the managed ledger, and the writer, recovery, members and quorums of one ledger."""
