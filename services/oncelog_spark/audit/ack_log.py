"""The audit of a topic's subscriptions: the snapshot and the ack log behind it are folded, and compared with the
state that the topic owner reports, as of exactly the same position.

The order of the requests matters while the topic is in use: first the snapshot is read, then the owner is asked, then
the ledgers of the chain are listed. So the snapshot is not newer than the report, and the list covers the report.
"""

import json
from collections.abc import Sequence

from crc32c import crc32c

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    LedgerUnavailable,
    LogHole,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import body_of, decode_entry
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.snapshots.ack_snapshot import restore_subscriptions
from oncelog.rpc.codecs.metadata_codec import LEDGERS
from oncelog.storage_client.reader import read_entries
from oncelog.verify.range_summary import Finding
from oncelog.verify.subscriptions import RULE, SubscriptionsComparison, compare_subscriptions
from oncelog.wire import metadata_pb2 as pb
from oncelog_spark.audit.owner_state import ask_owner
from oncelog_spark.audit.range_task import PATIENCE_MS
from oncelog_spark.cluster import ClusterConnection, PresentLedgers, addresses_of, closed_ledger, storage_of


async def check_subscriptions(
    cluster: ClusterConnection, topic: str, topic_id: TopicId, chunks: Sequence[Buffer], position: Position
) -> SubscriptionsComparison:
    """chunks: of the subscriptions in a snapshot, as of `position` of the ack log; none and BEFORE_ALL without a
    snapshot. Raises TopicNotFound, PermissionDenied, DeadlineExceeded."""
    end, reported = await _ask_owner(cluster, topic, topic_id)
    if end is None:
        return SubscriptionsComparison(unchecked="the owner is about to write what was given up of the ack log")
    answer = await cluster.ask_metadata(LEDGERS, pb.LedgersRequest(topic=topic, with_acks=True, ledgers_max=1))
    missing = _missing(answer, position, end) or _given_up(answer, position, end)
    if missing:
        return SubscriptionsComparison(end, len(reported), unchecked=missing)
    try:
        fold = restore_subscriptions(chunks, position)
        for ledger in answer.ack_ledgers:
            if position.ledger_id <= ledger.ledger_id <= end.ledger_id:
                await _fold_ledger(cluster, topic, topic_id, fold, ledger, end)
    except LedgerUnavailable as error:
        return SubscriptionsComparison(end, len(reported), unchecked=f"the ack log: {error.message}")
    except (CorruptEntry, EntriesLost, LogHole, UnreadableEntry) as error:
        return SubscriptionsComparison(end, len(reported), findings=[Finding(RULE, None, error.message)])
    return compare_subscriptions(fold, reported)


async def _ask_owner(
    cluster: ClusterConnection, topic: str, topic_id: TopicId
) -> tuple[Position | None, dict[str, str]]:
    """(position in the ack log, {subscription: digest} as of it). None: the owner cannot say it now."""
    _, state = await ask_owner(cluster, topic, topic_id=topic_id, with_acks=True)
    if not state.ack_state_json:
        return None, {}
    found = json.loads(state.ack_state_json)
    return Position.parse(found["position"]), found["subscriptions"]


def _missing(answer: pb.LedgersAnswer, position: Position, end: Position) -> str:
    """Why the chain from `position` to `end` cannot be read; empty: it can."""
    again = "run the audit again"
    if position > end:
        return f"the snapshot of the subscriptions is newer than the owner's report: {again}"
    if position == BEFORE_ALL and answer.acks_deleted_below:
        return f"the ack log was trimmed, and no snapshot of the trimmed part was read: {again}"
    listed = {ledger.ledger_id for ledger in answer.ack_ledgers}
    if end not in (position, BEFORE_ALL) and not {position.ledger_id, end.ledger_id} - {BEFORE_ALL.ledger_id} <= listed:
        return f"ledgers of the ack log were trimmed meanwhile: {again}"
    return ""


def _given_up(answer: pb.LedgersAnswer, position: Position, end: Position) -> str:
    """What an operator has given up of the chain cannot be folded; the next snapshot does not need it any more."""
    for ledger in answer.ack_ledgers:
        if ledger.given_up_by and position.ledger_id <= ledger.ledger_id <= end.ledger_id:
            return f"{ledger.given_up_by} has given up entries of ledger {ledger.ledger_id} of the ack log"
    return ""


async def _fold_ledger(
    cluster: ClusterConnection,
    topic: str,
    topic_id: TopicId,
    fold: SubscriptionsState,
    ledger: pb.TopicLedger,
    end: Position,
) -> None:
    """Fold the entries of one ledger behind the fold's position, up to `end`."""
    ledger_id = LedgerId(ledger.ledger_id)
    first = EntryId(fold.position.entry_id + 1 if fold.position.ledger_id == ledger_id else 0)
    last = end.entry_id if ledger_id == end.ledger_id else EntryId(ledger.end)
    if first > last:
        return
    members = tuple((Incarnation(one.incarnation), one.address) for one in ledger.members)
    metadata = closed_ledger(ledger_id, topic_id, (member for member, _ in members), last)
    async with storage_of(cluster.credentials, members) as storage:
        present = PresentLedgers(cluster, topic, storage, addresses_of(members), purpose=LedgerPurpose.ACKS)
        record = present.record_of(metadata)
        async for page in read_entries(storage, metadata, first, last, timeout_ms=PATIENCE_MS, record=record):
            for entry_id, data in page:
                header = decode_entry(data, ledger_id=ledger_id, entry_id=entry_id, checksum=crc32c)
                fold.fold(header, body_of(bytes(data)))
