"""`oncelog storage`: tools for the directory of a stopped storage node."""
