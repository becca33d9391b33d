"""Pulsar's Go client."""
