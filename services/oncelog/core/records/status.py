"""The outcome of a compare-and-set in the metadata store.

Reads need no status: the shell repeats them, each after a sync, until they are answered. After CONFLICT or UNKNOWN a
core reads again and decides from the record, never from the failure itself: a CONFLICT may hide its own write whose
first reply was lost, and an UNKNOWN write may or may not be applied.
"""

from enum import Enum


class WriteStatus(Enum):
    """OK: applied. CONFLICT: not applied, because the version or existence differs. UNKNOWN: the reply is lost."""

    OK = "ok"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
