"""The tests of Pulsar's own client libraries, as they are, in front of a door."""
