"""Storage nodes and their disks under faults."""
