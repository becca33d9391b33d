"""What a storage node does in the background: compaction, scrubbing, reviews, space, readiness."""
