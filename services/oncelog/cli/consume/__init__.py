"""`oncelog consume`: prints the messages of a subscription, and acknowledges them."""
