"""What an owner shows to operators."""
