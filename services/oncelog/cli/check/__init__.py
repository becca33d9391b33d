"""`oncelog check`: whether a cluster keeps its promise, in five seconds."""
