"""Tests that are text."""
