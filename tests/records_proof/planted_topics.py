"""Plants topics into the directories of stopped storage nodes, as if their owners had written them over months.

Each topic has a log of six ledgers, two of snapshots and two of its ack log, each with a head. Every member has every
entry. Message n of a topic is `NAME n`; one producer has written all, and one subscription has acknowledged all but the
last one.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from crc32c import crc32c

from oncelog.core.acks.ack_format import encode_change, encode_changes
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import Acked, Change, IndexRange, SubscriptionCreated, SubscriptionType
from oncelog.core.errors import JournalFailed
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import (
    EntryHeader,
    EntryKind,
    ProducerOpened,
    SequenceMode,
    encode_opened,
)
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.ids import (
    BEFORE_ALL,
    NO_SEQUENCE,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SeekEpoch,
    SubscriptionNumber,
    TopicId,
)
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.snapshots.ack_snapshot import encode_subscriptions
from oncelog.core.snapshots.dedup_encoder import SnapshotEncoder
from oncelog.core.snapshots.dedup_format import SnapshotManifest, encode_manifest
from oncelog.log_storage.directory.replay import replay
from oncelog.log_storage.directory.segment_format import SegmentRecord
from oncelog.log_storage.directory.storage_directory import StorageDirectory, cluster_of
from oncelog.log_storage.serve.journal import Journal
from tests.cluster.until import until

#: Below the ids of the second era, and above those of the cluster's own.
FIRST_LEDGER = 1_000_000
LEDGERS_OF_TOPIC = 10
_LOG_LEDGERS = 6
_BATCHES = 2
MESSAGES = _LOG_LEDGERS * _BATCHES
SUBSCRIPTION = "archive"
#: In memory.
_TOPICS_AT_ONCE = 100
_SYNC_S = 60.0


def name_of(number: int) -> str:
    return f"public/default/planted-{number:06}"


def value_of(number: int, index: int) -> bytes:
    return f"{name_of(number)} {index}".encode()


def entries_of(number: int, members: tuple[Incarnation, ...], now_ms: int) -> list[tuple[LedgerId, EntryId, bytes]]:
    """(ledger, entry, its bytes) of one topic, in the order of writing."""
    topic = _Topic(number, members, now_ms)
    topic.write()
    return topic.entries


@dataclass(slots=True)
class _Topic:
    number: int
    members: tuple[Incarnation, ...]
    now_ms: int
    log: DedupState = field(default_factory=DedupState)
    acks: SubscriptionsState = field(default_factory=SubscriptionsState)
    entries: list[tuple[LedgerId, EntryId, bytes]] = field(default_factory=list)
    _linked: int = 0

    @property
    def topic_id(self) -> TopicId:
        return TopicId(f"{self.number + 1:032x}")

    def write(self) -> None:
        subscription = SubscriptionNumber(1)
        created = SubscriptionCreated(subscription, f"{self.number + 1:032x}", SUBSCRIPTION, SubscriptionType.SHARED, 0)
        for half in range(2):
            for _ in range(_LOG_LEDGERS // 2):
                self._write_log()
            ranges = (IndexRange(half * MESSAGES // 2, self.log.next_index - 1 - half),)
            acked = Acked(subscription, SeekEpoch(0), ranges)
            self._write_acks([acked] if half else [created, acked])
            self._write_snapshot(half)

    def _link(self, kind: EntryKind, former: Position) -> LedgerWriter:
        ledger_id = LedgerId(FIRST_LEDGER + self.number * LEDGERS_OF_TOPIC + self._linked)
        self._linked += 1
        record = LedgerMetadata(ledger_id, self.topic_id, self.members, 2)
        writer = LedgerWriter(record, owner_epoch=OwnerEpoch(1), checksum=crc32c)
        before = None if former == BEFORE_ALL else former
        head = encode_head(LedgerHead(name_of(self.number), self.members, 2, 1, self.members[0], former=before))
        if kind is EntryKind.HEAD_LOG:
            self._append_to_log(writer, kind, head)
        else:
            self._append(writer, kind, head)
        return writer

    def _append(
        self, writer: LedgerWriter, kind: EntryKind, body: bytes, *, index: int = 0, count: int = 0
    ) -> EntryHeader:
        add = writer.append(kind, body, base_index=index, skip_first=0, count=count, now_ms=self.now_ms)
        self.entries.append((writer.ledger_id, add.entry_id, b"".join(map(bytes, add.parts))))
        for member in self.members:
            writer.added(member, [add.entry_id])
        return add.header

    def _append_to_log(self, writer: LedgerWriter, kind: EntryKind, body: bytes, *, count: int = 0) -> None:
        header = self._append(writer, kind, body, index=self.log.next_index, count=count)
        self.log.fold(header, self.entries[-1][2])

    def _write_log(self) -> None:
        writer = self._link(EntryKind.HEAD_LOG, self.log.position)
        producer_id, generation = ProducerId(self.number + 1), Generation(1)
        if not self.log.producers:
            opened = ProducerOpened(
                self.topic_id, "importer", producer_id, generation, SequenceMode.MONOTONIC, NO_SEQUENCE
            )
            self._append_to_log(writer, EntryKind.PRODUCER_OPENED, encode_opened(opened))
        for _ in range(_BATCHES):
            at = self.log.next_index
            batch = encode_batch(
                encode_values([value_of(self.number, at)]), producer_id=producer_id, generation=generation,
                first=at, last=at, count=1, publish_time_ms=self.now_ms, checksum=crc32c,
            )  # fmt: skip
            self._append_to_log(writer, EntryKind.MESSAGES, batch, count=1)

    def _write_acks(self, changes: Sequence[Change]) -> None:
        writer = self._link(EntryKind.HEAD_ACKS, self.acks.position)
        body = encode_changes([encode_change(change) for change in changes])
        self.acks.fold(self._append(writer, EntryKind.ACK_STATE, body), body)

    def _write_snapshot(self, number: int) -> None:
        """A base."""
        writer = self._link(EntryKind.HEAD_SNAPSHOTS, BEFORE_ALL)
        encoder = SnapshotEncoder(self.log, number, crc32c, base=True)
        chunks = encoder.step()
        of_subscriptions = encode_subscriptions(number, self.acks, base=True)
        crc = encoder.crc
        for chunk in chunks:
            self._append(writer, EntryKind.SNAPSHOT_CHUNK, chunk)
        for chunk in of_subscriptions:
            self._append(writer, EntryKind.SUBSCRIPTIONS_CHUNK, chunk)
            crc = crc32c(chunk, crc)
        manifest = SnapshotManifest(
            number, -1, self.log.position, self.log.next_index, 1, len(chunks) + len(of_subscriptions), crc,
            self.acks.position,
        )  # fmt: skip
        self._append(writer, EntryKind.SNAPSHOT_MANIFEST, encode_manifest(manifest))


async def plant(directories: Sequence[Path], topics: int) -> None:
    """Write so many topics into the directories, whose storage nodes do not run."""
    async with AsyncExitStack() as stack:
        journals: list[Journal] = []
        members: list[Incarnation] = []
        for path in directories:
            directory = StorageDirectory.open(path, cluster_of(path))
            stack.callback(directory.close)
            loop = asyncio.get_running_loop()
            journals.append(Journal(directory, replay(directory), loop=loop, on_synced=_pass, on_failed=_fail))
            journals[-1].begin()
            stack.push_async_callback(journals[-1].close)
            members.append(Incarnation(directory.identity.incarnation))
        now_ms = time.time_ns() // 1_000_000
        for first in range(0, topics, _TOPICS_AT_ONCE):
            some = range(first, min(first + _TOPICS_AT_ONCE, topics))
            entries = chain.from_iterable(entries_of(number, tuple(members), now_ms) for number in some)
            records = [SegmentRecord(RecordKind.ADD, *entry) for entry in entries]
            for journal in journals:
                journal.append_many(records)
            await until(lambda: all(each.synced_lsn == each.last_lsn for each in journals), _SYNC_S, every_s=0.001)


def _pass(_: int) -> None:
    pass


def _fail(error: JournalFailed) -> None:
    raise AssertionError("the journal failed") from error
