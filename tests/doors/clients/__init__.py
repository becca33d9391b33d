"""Client libraries of Pulsar, as their users have them, in front of a door."""
