"""The sink's commit protocol."""
