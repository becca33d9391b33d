"""The hazards of a lost ZooKeeper: a part of `hazards`."""

from tests.tidy.hazard import Hazard

RECOVERY_HAZARDS = {
    "emptied-zookeeper": Hazard(
        "ZooKeeper has lost its data, and all services restart. A new cluster is created beside the storage nodes of "
        "the former one.",
        "A cluster is created only on request, or when all storage nodes have answered that their directories are "
        "empty. A running process compares ZooKeeper with what it has seen in it, and ends. No message advises to "
        "delete data.",
    ),
}
