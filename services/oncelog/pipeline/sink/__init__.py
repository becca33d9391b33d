"""Writing to topics, each row once: `position_*` is mode=position, `batch_*` is mode=batch."""
