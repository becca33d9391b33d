"""What a topic owner shows to readers."""
