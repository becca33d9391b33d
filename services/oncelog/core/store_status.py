"""How the metadata store answers a compare-and-set.

Reads are not here: the shell repeats them, each after a sync, until they are answered. After CONFLICT or UNKNOWN a core
reads again and decides from what it then finds, never from the failure itself: a CONFLICT may hide a write of one's own
whose first reply was lost, an UNKNOWN may be applied or not.
"""

from enum import Enum


class WriteStatus(Enum):
    """OK: applied. CONFLICT: not applied by this try, version or existence differs. UNKNOWN: the reply is lost."""

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
