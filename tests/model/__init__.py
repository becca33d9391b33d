"""An explicit-state model of one ledger's life: every order of steps of a small cluster, not only those of a seed."""
