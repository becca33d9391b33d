"""`oncelog produce`: publishes the lines of a file or of standard input, effectively once."""
