"""`oncelog` as a program that can be forked."""
