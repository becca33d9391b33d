"""Rules that keep tests steady on a machine of any speed; CONTRIBUTING has them in words."""
