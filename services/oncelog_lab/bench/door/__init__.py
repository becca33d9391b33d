"""`oncelog bench door`: clients of Pulsar in front of a door, against the SDK."""
