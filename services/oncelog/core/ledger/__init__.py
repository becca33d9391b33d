"""One ledger: its record, members, quorums, writer and recovery."""
