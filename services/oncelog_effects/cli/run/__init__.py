"""`oncelog run`: functions whose effects happen once, of a program of yours."""
