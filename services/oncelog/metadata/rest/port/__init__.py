"""The port of the REST interface: its server, its connections, and limits of request bodies."""
