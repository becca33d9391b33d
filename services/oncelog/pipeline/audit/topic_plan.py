"""The plan of a topic's audit, fixed before it begins: the end of the log, and the topic owner's own view of the topic.

The owner returns its map of producers and the position of this map in one answer, so that both belong together while
the topic grows. The list of ledgers is requested afterwards, so it always covers this position. Then the cursor is read
for the newest snapshot up to this position.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import CorruptEntry, EntriesLost, LedgerUnavailable, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, SequenceMode, body_of, peek_header
from oncelog.core.ids import (
    BEFORE_ALL,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    Position,
    ProducerId,
    SequenceId,
    TopicId,
)
from oncelog.core.snapshots.dedup_format import SnapshotReader, decode_manifest
from oncelog.pipeline.audit.ack_log import check_subscriptions
from oncelog.pipeline.audit.ledger_ranges import (
    AuditedLedger,
    AuditRange,
    cut,
    misplaced,
    range_behind,
    remembered_in,
)
from oncelog.pipeline.audit.owner_state import ask_owner
from oncelog.pipeline.audit.range_task import PATIENCE_MS
from oncelog.pipeline.cluster import (
    ClusterConnection,
    PresentLedgers,
    addresses_of,
    closed_ledger,
    ledgers_of,
    storage_of,
)
from oncelog.pipeline.options import ConnectionOptions
from oncelog.storage_client.reader import read_entries
from oncelog.verify.producer_marks import ReportedProducer
from oncelog.verify.range_summary import Finding
from oncelog.verify.remembered import RememberedBatch
from oncelog.verify.subscriptions import SubscriptionsComparison
from oncelog.verify.topic_check import LiveMap, ReportedSnapshot
from oncelog.wire import metadata_pb2 as pb

#: Producers of a live map in one answer of at most 16 MiB; each takes up to about 500 bytes.
PRODUCERS_MAX = 25_000
#: How long to ask members for an entry that probably does not exist.
END_PATIENCE_MS = 3_000
#: A log without a snapshot is damaged once it has this many times the entries after which a snapshot is due.
_OVERDUE_TIMES = 10
#: Entries that are requested of a cursor's open ledger, whose end is found by reading.
_ENTRIES_MAX = 2**31

Json = Mapping[str, Any]


class SnapshotDue(NamedTuple):
    """When the topic owner takes a snapshot at the latest. entries_max 0: not reported."""

    entries_max: int = 0
    interval_ms: int = 0


NOT_REPORTED = SnapshotDue()


@dataclass(frozen=True, slots=True)
class OwnerReport:
    """The topic owner's view of the topic. stats: its statistics. snapshot_number 0: no snapshot was taken."""

    owner_epoch: int
    live: LiveMap
    stats: Json
    snapshot_number: int
    snapshot_due: SnapshotDue = NOT_REPORTED


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The audit of one topic, or partition.

    snapshot_findings: problems of its snapshots that were found while planning. snapshot_newer: the snapshots that
    could be read have a later position. subscriptions: were compared while planning. all_copies: all copies of each
    entry are read.
    """

    topic: str
    topic_id: TopicId
    owner: OwnerReport
    ledgers: tuple[AuditedLedger, ...]
    snapshot: ReportedSnapshot | None
    snapshot_findings: tuple[Finding, ...]
    snapshot_newer: bool
    subscriptions: SubscriptionsComparison
    ranges: tuple[AuditRange, ...]
    all_copies: bool = False

    @property
    def from_start(self) -> bool:
        """Whether the log reaches back to its first message."""
        return not self.ledgers or self.ledgers[0].first_index == 0


async def plan_topic(
    cluster: ClusterConnection, connection: ConnectionOptions, topic: str, *, entries_max: int, all_copies: bool
) -> TopicPlan:
    """Raises TopicNotFound, PermissionDenied, DeadlineExceeded."""
    topic_id, owner = await _ask_owner(cluster, topic)
    answer = await ledgers_of(cluster, topic, with_snapshots=True)
    ledgers = kept_ledgers(answer.ledgers, owner.live.position)
    reading = SnapshotReading(cluster, topic, topic_id, owner.live.position)
    for ledger in reversed(answer.snapshot_ledgers):
        await reading.read(ledger)
        if reading.found is not None:
            break
    found = reading.found
    remembered = found.remembered if found else ()
    findings = [*reading.findings, *(misplaced(found.position, remembered, ledgers) if found else ())]
    trouble = trouble_of(owner.snapshot_number, found, newer=reading.newer)
    if trouble is not None:
        findings.append(Finding("snapshot", None, trouble))
    pieces = cut(ledgers, entries_max=entries_max, behind=found.position if found else None)
    if found is not None:
        found = found._replace(after=range_behind(pieces, found.position))
    return TopicPlan(
        topic,
        topic_id,
        owner,
        ledgers,
        found,
        tuple(findings),
        reading.newer,
        await check_subscriptions(cluster, topic, topic_id, reading.subscriptions, reading.acks),
        tuple(
            AuditRange(connection, topic, topic_id, slices, remembered_in(slices, remembered), all_copies)
            for slices in pieces
        ),
        all_copies,
    )


async def _ask_owner(cluster: ClusterConnection, topic: str) -> tuple[TopicId, OwnerReport]:
    topic_id, state = await ask_owner(cluster, topic, internal=True, producers_max=PRODUCERS_MAX)
    stats, internal = json.loads(state.stats_json), json.loads(state.internal_stats_json)
    return topic_id, owner_report(state.owner_epoch, stats, internal)


def owner_report(owner_epoch: int, stats: Json, internal: Json) -> OwnerReport:
    """Parse the statistics of a topic owner."""
    producers = {
        ProducerId(one["producer_id"]): ReportedProducer(
            one["name"],
            SequenceMode[one["mode"].upper()],
            Generation(one["generation"]),
            SequenceId(one["persisted"]),
        )
        for one in internal["producers"]
    }
    live = LiveMap(
        Position.parse(stats["last_position"]),
        stats["message_count"],
        producers,
        len(producers) == stats["producer_count"],
    )
    snapshot = internal["snapshot"]
    due = SnapshotDue(snapshot.get("entries_max", 0), snapshot.get("interval_ms", 0))
    return OwnerReport(owner_epoch, live, stats, snapshot["number"], due)


def kept_ledgers(listed: Iterable[pb.TopicLedger], end: Position) -> tuple[AuditedLedger, ...]:
    """The ledgers up to `end`, without what was stored behind it since."""
    found: list[AuditedLedger] = []
    for ledger in listed:
        members = tuple((Incarnation(one.incarnation), one.address) for one in ledger.members)
        ledger_id, closed = LedgerId(ledger.ledger_id), ledger.state == pb.LEDGER_STATE_CLOSED
        if ledger_id > end.ledger_id:
            break
        last = end.entry_id if ledger_id == end.ledger_id else EntryId(ledger.end)
        whole = closed and last == ledger.end
        length = ledger.length_bytes if whole else 0
        quorum = ledger.ack_quorum if whole else 0
        found.append(AuditedLedger(ledger_id, ledger.first_base_index, last, whole, length, members, quorum))
    return tuple(found)


class SnapshotReading:
    """Finds the newest complete snapshot at `end` or before it.

    The end of an open ledger is only found by reading. While a member is away it cannot be found, and this does not
    wait for it: the complete snapshots before it count, and the topic owner reports which snapshot must exist. The end
    of a closed ledger is in its metadata: an unreadable entry before it is damage.
    """

    def __init__(
        self,
        cluster: ClusterConnection,
        topic: str,
        topic_id: TopicId,
        end: Position,
        *,
        end_patience_ms: int = END_PATIENCE_MS,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._end_patience_ms = end_patience_ms
        self._topic_id = topic_id
        self._end = end
        self.found: ReportedSnapshot | None = None
        #: whether a snapshot was skipped because its position is later
        self.newer = False
        #: entries of closed ledgers that cannot be read
        self.findings: list[Finding] = []
        #: the subscriptions in that snapshot, as of this position of the ack log
        self.subscriptions: list[Buffer] = []
        self.acks = BEFORE_ALL

    async def read(self, ledger: pb.TopicLedger) -> None:
        members = tuple((Incarnation(one.incarnation), one.address) for one in ledger.members)
        closed = ledger.state == pb.LEDGER_STATE_CLOSED
        last = EntryId(ledger.end if closed else _ENTRIES_MAX)
        ids = (member for member, _ in members)
        metadata = closed_ledger(LedgerId(ledger.ledger_id), self._topic_id, ids, last)
        reader, patience_ms = SnapshotReader(crc32c), PATIENCE_MS if closed else self._end_patience_ms
        async with storage_of(self._cluster.credentials, members) as storage:
            present = PresentLedgers(
                self._cluster, self._topic, storage, addresses_of(members), purpose=LedgerPurpose.DEDUP
            )
            record = present.record_of(metadata)
            try:
                pages = read_entries(storage, metadata, EntryId(0), last, timeout_ms=patience_ms, record=record)
                async for page in pages:
                    for entry_id, data in page:
                        self._feed(reader, entry_id, bytes(data))
            except (CorruptEntry, EntriesLost, UnreadableEntry) as error:
                if closed:  # otherwise it may be the end of the ledger
                    text = f"ledger {ledger.ledger_id} of the snapshots cannot be read: {error.message}"
                    self.findings.append(Finding("snapshot", None, text))
            except LedgerUnavailable:
                if closed:
                    raise
        manifest = reader.manifest
        if reader.state is not None and manifest is not None:
            producers = {
                producer_id: ReportedProducer(one.name, one.mode, one.generation, one.persisted)
                for producer_id, one in reader.state.producers.items()
            }
            remembered = tuple(
                RememberedBatch(producer_id, recent.first, recent.last, recent.count, recent.position, recent.offset)
                for producer_id, one in reader.state.producers.items()
                for recent in one.recent_batches
            )
            position, next_index = manifest.position, manifest.next_index
            self.found = ReportedSnapshot(manifest.number, position, next_index, producers, None, remembered)
            self.subscriptions, self.acks = reader.subscriptions, manifest.acks

    def _feed(self, reader: SnapshotReader, entry_id: EntryId, data: bytes) -> None:
        kind, body = peek_header(data).kind, body_of(data)
        if kind == EntryKind.SNAPSHOT_MANIFEST and decode_manifest(body).position > self._end:
            self.newer = True
            return
        reader.feed(entry_id, kind, body)


def missing_snapshot(plan: TopicPlan, entries: int, span_ms: int) -> str | None:
    """Why the log must have a snapshot although none can be read; None: it has one, or needs none.

    A takeover of a trimmed log needs a snapshot. And a topic owner takes one after a number of entries, or some time,
    at the latest: where the log is far beyond both, its snapshots are lost.
    """
    if plan.snapshot is not None or plan.snapshot_newer or plan.snapshot_findings:
        return None
    if not plan.from_start:
        return "the log was trimmed, and no snapshot of the trimmed part can be read: no topic owner can take it over"
    due = plan.owner.snapshot_due
    overdue = entries > due.entries_max and span_ms > due.interval_ms
    if due.entries_max and (overdue or entries > _OVERDUE_TIMES * due.entries_max):
        return (
            f"the log has {entries} entries, a snapshot is due after {due.entries_max} entries or "
            f"{due.interval_ms} ms, but none can be read: its snapshots are lost"
        )
    return None


def trouble_of(number: int, found: ReportedSnapshot | None, *, newer: bool) -> str | None:
    """The problem, if the topic owner took snapshot `number`, and `found` is the newest that could be read."""
    if number == 0 or (found is not None and found.number >= number):
        return None
    if found is None and newer:
        return None  # later snapshots have replaced the one of this position
    readable = "none can be read" if found is None else f"the newest that can be read is {found.number}"
    return f"the topic owner has taken snapshot {number}, but {readable}"
