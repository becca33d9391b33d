"""The plan of a topic's audit, fixed before it begins: the end of the log, and the topic owner's own view of the topic.

The owner returns its map of producers and the position of this map in one answer, so that both belong together while
the topic grows. The list of ledgers is requested afterwards, so it always covers this position. Then the cursor is read
for the newest snapshot up to this position.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from crc32c import crc32c

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.storage_client.losses import END_PATIENCE_MS, read_whole_ledger
from oncelog.verify.owner_report import OwnerReport, owner_report
from oncelog.verify.snapshots import SnapshotSearch
from oncelog.verify.subscriptions import SubscriptionsComparison
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.audit.ack_log import check_subscriptions
from oncelog_spark.audit.ledger_ranges import (
    AuditedLedger,
    AuditRange,
    cut,
    remembered_in,
)
from oncelog_spark.audit.owner_state import ask_owner
from oncelog_spark.audit.range_task import PATIENCE_MS
from oncelog_spark.cluster import (
    ClusterConnection,
    PresentLedgers,
    addresses_of,
    closed_ledger,
    ledgers_of,
    storage_of,
)
from oncelog_spark.options import ConnectionOptions

#: Producers of a live map in one answer of at most 16 MiB; each takes up to about 500 bytes.
PRODUCERS_MAX = 25_000


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The audit of one topic, or partition.

    subscriptions: were compared while planning. all_copies: all copies of each entry are read.
    """

    topic: str
    topic_id: TopicId
    owner: OwnerReport
    ledgers: tuple[AuditedLedger, ...]
    snapshots: SnapshotSearch
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
    search = SnapshotSearch(crc32c, taken=owner.snapshot_number, end=owner.live.position)
    await search_snapshots(cluster, topic, topic_id, reversed(answer.snapshot_ledgers), search)
    found = search.found
    remembered = found.remembered if found else ()
    pieces = cut(ledgers, entries_max=entries_max, behind=found.position if found else None)
    return TopicPlan(
        topic,
        topic_id,
        owner,
        ledgers,
        search,
        await check_subscriptions(cluster, topic, topic_id, search.subscriptions, search.acks),
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


async def search_snapshots(
    cluster: ClusterConnection,
    topic: str,
    topic_id: TopicId,
    ledgers: Iterable[pb.TopicLedger],
    search: SnapshotSearch,
    *,
    end_patience_ms: int = END_PATIENCE_MS,
) -> None:
    """ledgers: of the cursor, the newest first."""
    for ledger in ledgers:
        members = tuple((Incarnation(one.incarnation), one.address) for one in ledger.members)
        metadata = closed_ledger(
            LedgerId(ledger.ledger_id), topic_id, (member for member, _ in members), EntryId(ledger.end)
        )
        if ledger.state != pb.LEDGER_STATE_CLOSED:
            metadata = replace(metadata, state=LedgerState.OPEN)
        search.begin()
        async with storage_of(cluster.credentials, members) as storage:
            present = PresentLedgers(cluster, topic, storage, addresses_of(members), purpose=LedgerPurpose.DEDUP)
            unreadable = await read_whole_ledger(
                storage, metadata, search.feed, timeout_ms=PATIENCE_MS, end_timeout_ms=end_patience_ms,
                record=present.record_of(metadata),
            )  # fmt: skip
        if unreadable:
            search.unreadable(metadata.ledger_id, unreadable)
        search.conclude()
        if search.found is not None:
            return
