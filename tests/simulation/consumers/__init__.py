"""The consumers of a simulated topic, the owner's end of their streams, and their oracles."""
