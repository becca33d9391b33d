"""The cluster itself: its creation, and its level."""
