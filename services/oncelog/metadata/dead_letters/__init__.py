"""Dead letters: stored in their topics, and published to their origin again."""
