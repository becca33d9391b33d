"""The decisions of repair: one ledger, what to do next, and whether a storage node may be replaced."""
