"""The whole cluster of cores under a seeded scheduler, with a faulty network, faulty disks and a faulty store."""
