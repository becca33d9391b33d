"""`oncelog-doors pulsar-proof`: defects of Pulsar's deduplication, shown with its own clients, and what a door makes of them."""
