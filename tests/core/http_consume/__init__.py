"""Sessions of HTTP consume."""
