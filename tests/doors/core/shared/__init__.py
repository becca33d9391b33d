"""What all doors decide in the same way."""
