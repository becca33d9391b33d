"""Stores of effects, with real databases."""
