"""`oncelog relay`."""
