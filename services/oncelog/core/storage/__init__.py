"""What one storage node holds and answers."""
