"""What the proofs share: their command line, the processes that they kill, and the table of a run."""
