"""One program for each system; each runs in the virtualenv of the comparison, without the product."""
