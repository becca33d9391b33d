"""Tests of the distribution `oncelog_doors`."""
