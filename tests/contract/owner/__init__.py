"""The topic owner: its streams, its shell, and what operators see."""
