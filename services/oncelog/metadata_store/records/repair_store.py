"""The repairer's progress, written by the elected metadata replica, so that every replica can report it.

Nothing depends on the record: which ledgers need repair follows from their records and from the registrations.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oncelog.core.formats.record_fields import built
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.json_records import decode_record, encode_record
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, create_or_write

#: Stuck ledgers that the progress names.
STUCK_MAX = 100
#: Samples of an hour.
SAMPLE_MS, SAMPLES_MAX = 60_000, 60


@dataclass(frozen=True, slots=True)
class RunningRepair:
    """One ledger that is being repaired. step: JOIN, COPY, ATTEST, RESTORE, SWAP or WHOLE. entries_total: of all its
    copies."""

    ledger_id: LedgerId
    topic_id: TopicId
    step: str
    entries_done: int = 0
    entries_total: int = 0
    began_ms: int = 0


@dataclass(frozen=True, slots=True)
class StuckRepair:
    """A ledger that cannot be repaired now, and why."""

    ledger_id: LedgerId
    topic_id: TopicId
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class RepairSample:
    """The copies at one time. left_bytes: of those that are missing. entries_by_copies: how many entries of closed
    ledgers have 0, 1, 2, … copies."""

    at_ms: int
    left_bytes: int
    entries_by_copies: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """Times are in milliseconds since 1970. The counters are those of the writing replica since it was elected.

    paused: empty: nothing keeps repair from running. oldest_ms: since when the ledger that waits
    longest needs repair; 0: none does. left_bytes, entries_by_copies: as in RepairSample, now. history: a sample each
    minute, the newest last; of the replicas that were elected before, too.
    """

    replica: str = ""
    updated_ms: int = 0
    paused: str = ""
    under_replicated: int = 0
    unavailable: int = 0
    lost: int = 0
    frozen: int = 0
    queued: int = 0
    debt: int = 0
    oldest_ms: int = 0
    bytes_per_s: int = 0
    repaired_bytes: int = 0
    repaired_entries: int = 0
    repaired_ledgers: int = 0
    running: tuple[RunningRepair, ...] = ()
    stuck: tuple[StuckRepair, ...] = ()
    left_bytes: int = 0
    entries_by_copies: tuple[int, ...] = ()
    history: tuple[RepairSample, ...] = ()


def _progress(fields: Mapping[str, Any]) -> RepairProgress:
    older = {"left_bytes": 0, "entries_by_copies": [], "history": []}
    return built(RepairProgress, {**older, **fields})


class RepairStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self) -> RepairProgress | None:
        """The last progress; None: there was no repairer yet. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(paths.REPAIR)
        return None if node is None else decode_record(node.data, "the progress of repair", _progress)

    async def write(self, progress: RepairProgress) -> None:
        """Replace the record. A write that loses against another one is dropped: the next one is due soon.

        Raises StoreUnavailable.
        """
        node = await self._session.read(paths.REPAIR)
        version = ABSENT_VERSION if node is None else node.version
        await create_or_write(self._session, paths.REPAIR, encode_record(asdict(progress)), version=version)
