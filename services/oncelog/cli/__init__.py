"""The command line program `oncelog`."""
