"""Export, import, compaction and copies."""
