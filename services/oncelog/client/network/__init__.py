"""The client's connections: look-ups, and streams to topic owners and storage nodes."""
