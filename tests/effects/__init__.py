"""Tests of the distribution `oncelog_effects`."""
