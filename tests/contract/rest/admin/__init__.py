"""Administration by REST."""
