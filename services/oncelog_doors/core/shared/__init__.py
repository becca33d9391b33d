"""What all doors decide in the same way, whatever their clients speak."""
