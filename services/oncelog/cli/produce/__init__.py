"""`oncelog produce`: lines of a file or of standard input, published effectively once."""
