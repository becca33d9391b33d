"""The work of a Spark task: read one range from storage nodes and fold it, with connections of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from crc32c import crc32c

from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import EntryId, Position, TopicId
from oncelog.storage_client.losses import LostEntry, read_with_losses
from oncelog.verify.copies import compare_copies
from oncelog.verify.range_fold import RangeFold, find_places
from oncelog.verify.range_summary import RangeSummary
from oncelog.verify.remembered import by_position
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.violation import Violation
from oncelog_spark.audit.copy_reading import CopyReading
from oncelog_spark.audit.ledger_ranges import AuditRange, LedgerSlice
from oncelog_spark.cluster import (
    ClusterConnection,
    PresentLedgers,
    addresses_of,
    closed_ledger,
    process_loop,
    storage_of,
)

#: How long to wait for storage nodes that do not answer, since the last entry.
PATIENCE_MS = 60_000

Place = tuple[int, int, Position, int]


def fold_range(range_: AuditRange) -> RangeSummary:
    """Raises LedgerUnavailable when storage nodes do not answer: then the audit has no verdict."""
    return process_loop().run_until_complete(fold_entries(range_))


async def fold_entries(range_: AuditRange) -> RangeSummary:
    """The same as a coroutine."""
    fold = RangeFold(range_.topic_id, by_position(range_.remembered))

    def take(position: Position, data: Buffer) -> None:
        try:
            fold.add(parse_entry(bytes(data), position, crc32c, keeps_values=False))
        except Violation as violation:
            fold.lose(position, "digest", str(violation))

    await _read(range_, take, fold.lose)
    async with _present(range_) as present:
        reading = CopyReading(present.storage, present.addresses, present)
        for piece in range_.slices:
            if range_.all_copies:
                copies = await reading.copies_of(piece)
                compared = compare_copies(piece.ledger_id, piece.first, piece.last, piece.quorum, copies)
            else:
                copies = await reading.beginnings_of(piece)
                compared = compare_copies(piece.ledger_id, EntryId(0), EntryId(-1), piece.quorum, copies)
            fold.compare(compared, {member: copy.silent for member, copy in copies.items() if copy.silent})
    return fold.summary


def places_in(range_: AuditRange, wanted: dict[int, set[int]]) -> list[Place]:
    """The positions of the wanted ids in the range: (producer id, id, position, batch_index)."""
    found: list[Place] = []

    def take(position: Position, data: Buffer) -> None:
        try:
            found.extend(find_places(parse_entry(bytes(data), position, crc32c, keeps_values=False), wanted))
        except Violation:
            return  # reported by the first job

    def lose(_position: Position, _rule: str, _message: str) -> None:
        """Reported by the first job, too."""

    process_loop().run_until_complete(_read(range_, take, lose))
    return found


async def _read(
    range_: AuditRange, take: Callable[[Position, Buffer], None], lose: Callable[[Position, str, str], None]
) -> None:
    async with _present(range_) as present:
        for piece in range_.slices:
            await _read_slice(present, range_.topic_id, piece, take, lose)


@asynccontextmanager
async def _present(range_: AuditRange) -> AsyncIterator[PresentLedgers]:
    """The range's ledgers, and links to their members."""
    members = tuple({member: None for piece in range_.slices for member in piece.members})
    async with ClusterConnection(range_.connection) as cluster, storage_of(cluster.credentials, members) as storage:
        yield PresentLedgers(cluster, range_.topic, storage, addresses_of(members))


async def _read_slice(
    present: PresentLedgers,
    topic_id: TopicId,
    piece: LedgerSlice,
    take: Callable[[Position, Buffer], None],
    lose: Callable[[Position, str, str], None],
) -> None:
    metadata = closed_ledger(piece.ledger_id, topic_id, (member for member, _ in piece.members), piece.last)
    found = read_with_losses(
        present.storage, metadata, piece.first, piece.last, timeout_ms=PATIENCE_MS, record=present.record_of(metadata)
    )
    async for each in found:
        if isinstance(each, LostEntry):
            lose(Position(piece.ledger_id, each.entry_id), "unreadable", each.reason)
        else:
            for entry_id, data in each:
                take(Position(piece.ledger_id, entry_id), data)
