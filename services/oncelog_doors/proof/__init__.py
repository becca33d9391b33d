"""`oncelog-doors pulsar-proof`: defects of Pulsar's deduplication and acknowledgements, shown with its own clients, and
what a door makes of them.

    histories   what happens, and what is expected of it on each side
    world       the cluster, a door for each side, clients; `proxy` breaks their connections
    pulsar_*    the left side: the same door, where Pulsar's rule decides
    outcome     what was acknowledged, and what is read back or received again; `table` shows it
"""
