"""Routes that only look: at figures, events, single messages and proofs."""
