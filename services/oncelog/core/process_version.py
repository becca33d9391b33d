"""What the processes of a mixed cluster can do: the version that each process registers with.

    1   before repair
    2   ledger records with `joining`, `whole`, `lost` and `frozen`; floors (`deleted_below`); the answer ERASED
    3   topics with an ack log (topic records of format 2, entries of kind 7)
    4   grants and snapshots that keep `growths`, by which a producer's messages are routed
    5   pages of ledgers (topic records of format 3)
    6   subscriptions whose messages take effect in a store (topic records of format 4, ack logs of format 2)
    7   batches compressed by Zstandard or LZ4, and messages in chunks (topic records of format 5); producers that are
        leased and expire (entries of kind 4, snapshots with the time of the log)
    8   the level of the cluster is stored in its record (format 2), and records keep the fields that they do not know

A first page is written only when every
registered process has version 5: an older one reads no topic record with pages. A producer expires only when every
registered process has version 7: an older owner could not take the topic over.

From version 8 on what older programs cannot read begins at a stored level instead, which an operator raises once every
process knows it (`core.placement.level`). Programs before version 8 refuse a cluster whose level is stored.
"""

#: This program's version.
PROCESS_VERSION = 8
#: The lowest version, and the lowest level: no program or cluster of a lower one exists.
FIRST_VERSION = 8
#: The lowest version of a process that can serve a topic with an ack log.
ACKS_VERSION = 3
#: The lowest version of a process that reads pages of a topic's list of ledgers.
PAGES_VERSION = 5
#: The lowest version of a process that can serve a topic with effects.
EFFECTS_VERSION = 6
#: The lowest version of a process that reads batches compressed by Zstandard or LZ4, and messages in chunks.
CODECS_VERSION = 7
#: The lowest version of a process that can serve a topic whose producers are leased or expire.
LEASES_VERSION = 7
#: The lowest version of a process that reads heads, and the highest below.
LEVELS_VERSION = 8
BEFORE_LEVELS = LEVELS_VERSION - 1
