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
    "late-note": Hazard(
        "A note of version 1 arrives at a storage node behind the note of version 2. Or a record is deleted and made "
        "again, and its version begins at 0. The older value stays, and a restore brings it back.",
        "Of one path the note with the highest (era, created, deleted, version) stays, in memory, at a replay and in "
        "compaction. A deletion is a note, not an absence.",
    ),
}
