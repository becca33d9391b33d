"""Routes that only look: figures, events, messages, proofs."""
