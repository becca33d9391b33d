"""Tests of `oncelog.core.rebuild`."""
