"""`oncelog-doors pulsar-proof` and `kafka-proof`: defects of these systems' deduplication, and of Pulsar's
acknowledgements, shown with their own clients, and what a door makes of them.

    pulsar, kafka   the histories of each; its clients; the left side: the same door, where its rule decides
    histories       what a proof consists of
    world           the cluster, a door for each side, clients; `proxy` breaks their connections
    outcome         what was acknowledged, and what is read back or received again; `table` shows it
"""
