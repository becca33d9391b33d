"""The oracles: what every history must satisfy, whoever made it."""
