"""The commands `oncelog run`, `effects`, `relay` and `mirror`. `oncelog.cli` loads them by name."""
