"""`oncelog context`: named clusters, kept in a file."""
