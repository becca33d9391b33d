"""Connections of clients, whatever they speak: their places, what is held, and how they end."""
