"""One ledger: quorum, writer, recovery."""
