"""`oncelog effects`: for operators of databases in which messages take effect."""
