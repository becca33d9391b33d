"""The REST port of a door, with a cluster that answers from a table."""
