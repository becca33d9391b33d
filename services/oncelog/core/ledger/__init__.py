"""A topic's ledgers: the chain, writing, recovery, quorums."""
