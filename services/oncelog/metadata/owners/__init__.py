"""The topic owners as one replica sees them: their sessions and streams, which of them are suspected, and calls."""
