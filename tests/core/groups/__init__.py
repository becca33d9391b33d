"""Subscriptions and their consumers."""
