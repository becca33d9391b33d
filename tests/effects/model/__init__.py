"""Explicit-state models of ordered effects and of the outbox relay: every order of their steps."""
