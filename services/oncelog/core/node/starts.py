"""The starts of a storage node's directory: which of them is one of the past, or of a copy (hazards
directory-went-back, copied-directory and ledger-id-given-twice).

A directory that was restored from an older copy, or lost the end of its last segment, looks like one that never had
more: what it lacks it would report as missing, and fences that it forgot would not hold. So it is compared with what
the cluster has noted of it. The shell is `log_storage.directory_starts`.

Rules
1. A start is of the past if the cluster has noted another start than the last two of the directory, or if the journal
   ends below the noted end: a hole, so all ledgers are in limbo. So it is if the cluster's note was lost, and was
   written anew: then nothing shows that the directory is not one of the past.
2. Limbo is durable before the directory gets the id of the new start, and that before the cluster has it. So an
   interrupted start is neither taken for the past, nor does it hide one.
3. No start while another process is registered for the same directory at another address: one of the two has a copy.
   What the other process stores from now on would be missing here, and no noted end would show it.
4. A process that finds the start of another one noted ends.
5. A node that has a ledger which ZooKeeper would still give a first time does not register.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from oncelog.core.formats.record_fields import Further, no_fields
from oncelog.core.ids import LedgerId
from oncelog.core.process_version import PROCESS_VERSION

#: The last start of a directory that was marked as restored: the cluster has noted no such start.
RESTORED = "restored"
#: The newest start in a record that was lost and is written anew: the cluster knows no start of the directory any more.
REBUILT = "rebuilt"


class JournalEnd(NamedTuple):
    """A place in a node's journal. Segments ascend, so the pair does."""

    segment_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LastStart:
    """What a directory knows of its last start, and of the one before. further: see `record_fields`."""

    starts: int = 0
    start_id: str = ""
    former_id: str = ""
    further: Further = field(default_factory=no_fields, hash=False)


@dataclass(frozen=True, slots=True)
class StorageEnd:
    """What the cluster has noted of a directory: its newest start, and up to where its journal is synced.

    version: of the process that noted it (`core.process_version`). further: see `record_fields`.
    """

    starts: int
    start_id: str
    end: JournalEnd
    version: int = PROCESS_VERSION
    further: Further = field(default_factory=no_fields, hash=False)


def why_past(last: LastStart, noted: StorageEnd | None) -> str:
    """Why a start is one of the past by its number; empty if it is none."""
    if last.start_id == RESTORED:
        return "it was marked as restored"
    if noted is not None and noted.start_id == REBUILT:
        return "the cluster's record of its starts was lost, and was written anew"
    if noted is None or noted.start_id in {last.start_id, last.former_id}:
        return ""
    return f"it is from start {last.starts}, and the cluster knows of {noted.starts} starts"


def lost_end(scanned: JournalEnd, known: JournalEnd) -> str:
    """Why a start is one of the past by the end of its journal; empty if it is none."""
    return f"its journal ends at {scanned}, and it was synced up to {known}" if scanned < known else ""


def next_start(
    last: LastStart, noted: StorageEnd | None, start_id: str, end: JournalEnd
) -> tuple[LastStart, StorageEnd]:
    """What the directory and then the cluster note of a start with a new id."""
    former = StorageEnd(0, last.start_id, end) if noted is None else noted
    starts = max(last.starts, former.starts) + 1
    file = LastStart(starts, start_id, former.start_id, last.further)
    return file, replace(former, starts=starts, start_id=start_id, end=end, version=PROCESS_VERSION)


def served_elsewhere(registered: str | None, own: str) -> bool:
    """Whether another process may serve this directory or a copy of it. registered: the address of the live record; the
    process that had the own address before is gone."""
    return registered is not None and registered != own


def is_superseded(begun: StorageEnd, noted: StorageEnd | None) -> bool:
    """Whether another process has started since with this directory or a copy of it."""
    return noted is not None and noted.start_id != begun.start_id


def is_newer(newest: LedgerId | None, following: LedgerId) -> bool:
    """Whether the data are newer than ZooKeeper. newest: the highest ledger that the node holds or has fenced.
    following: the ledger id that ZooKeeper gives next."""
    return newest is not None and newest >= following
