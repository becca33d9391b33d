"""Tests of `core.outbox`."""
