"""Reads the messages of one range: closed ledgers from storage nodes, the rest from the topic's owner.

Rules
- Message numbers decide where reading stands. Whichever side gives the next entry, the entry must begin at the number
  wanted; an entry that begins behind it shows that messages were trimmed away, which is an error or a warning.
- The members of a ledger are those of the plan until one does not give an entry; then the metadata service names the
  present ones.
- Without a ticket storage nodes serve superusers only. For other callers, and while none of a ledger's members is
  reached, the topic owner gives the same entries, or tickets for them (`client.network.storage_reads`).
- Entries of storage nodes carry the ids of producers, not their names; the owner is asked for each name once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial

from crc32c import crc32c

from oncelog.client.network.backoff import session_backoff
from oncelog.client.reading.read_stream import ReadStream
from oncelog.client.values.messages import StoredBatch, open_entry
from oncelog.core.errors import (
    DeadlineExceeded,
    EntriesLost,
    InvariantViolated,
    LedgerUnavailable,
    OncelogError,
    ReaderClosed,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, EntryHeader, EntryKind, peek_header
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, LedgerId, Position, ProducerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.codecs.owner_codec import PRODUCER_NAMES
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage
from oncelog.rpc.codecs.storage_codec import DESCRIBE
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord, find_entry, read_entries, read_entry, side_of_index
from oncelog.wire.owner_pb2 import ProducerNamesRequest
from oncelog.wire.storage_pb2 import DescribeRequest
from oncelog_spark.cluster import (
    SKIP_ADVICE,
    ClusterConnection,
    PresentLedgers,
    addresses_of,
    closed_ledger,
    storage_of,
)
from oncelog_spark.source.arrow_columns import FoundEntry
from oncelog_spark.source.offsets import ClosedLedger, MessageLoss, TaskRange, refuse_loss

#: How long storage nodes may take before the owner is asked instead.
STORAGE_PATIENCE_MS = 3_000
_PROBE_TIMEOUT_MS = 3_000

logger = logging.getLogger(__name__)


class RangeReader:
    """Reads one range, once."""

    def __init__(
        self, cluster: ClusterConnection, range_: TaskRange, *, fail_on_data_loss: bool, skip_corrupt: bool = False
    ) -> None:
        self._cluster = cluster
        self._span = range_.span
        self._closed = range_.closed
        self._fail_on_data_loss = fail_on_data_loss
        self._skip_corrupt = skip_corrupt
        #: number of the next message wanted
        self._at = range_.span.first
        self._names: dict[ProducerId, str] = {}
        #: of the last entry that was read
        self._last: Position | None = None

    async def entries(self) -> AsyncGenerator[FoundEntry, None]:
        """The entries with messages of the range, in order; the first and the last may hold others, too.

        Raises NotFound where messages are gone and that is not allowed, EntriesLost, UnreadableEntry, CorruptEntry,
        DeadlineExceeded, LedgerUnavailable, PermissionDenied.
        """
        for ledger in self._closed:
            if ledger.first > self._at:
                async for found in self._from_owner(min(ledger.first, self._span.end)):
                    yield found
            try:
                async for found in self._from_storage(ledger, min(ledger.end, self._span.end)):
                    yield found
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.warning("ledger %d is read from the topic owner: %s", ledger.ledger_id, error.message)
                break
        async for found in self._from_owner(self._span.end):
            yield found

    # --- closed ledgers -----------------------------------------------------------------------------------------------

    async def _from_storage(self, ledger: ClosedLedger, end: int) -> AsyncIterator[FoundEntry]:
        """What is wanted below `end`. Raises OncelogError where the owner must be asked instead."""
        members = (member for member, _ in ledger.members)
        metadata = closed_ledger(ledger.ledger_id, self._span.topic_id, members, ledger.last_entry)
        async with storage_of(self._cluster.credentials, ledger.members) as storage:
            await self._check_access(ledger)
            # A range that begins with the ledger needs no search, which is several calls, one after the other.
            present = PresentLedgers(self._cluster, self._span.topic, storage, addresses_of(ledger.members))
            record = present.record_of(metadata)
            first = EntryId(0) if self._at == ledger.first else await self._entry_of(storage, metadata, record)
            pages = read_entries(
                storage, metadata, first, ledger.last_entry, timeout_ms=STORAGE_PATIENCE_MS, record=record
            )
            async for page in pages:
                stored = [open_entry(data, crc32c) for _, data in page if _has_messages(data)]
                await self._learn_names(stored)
                for one in stored:
                    if self._at >= end:
                        return
                    if self._take(one):
                        yield FoundEntry(one, self._name_of(one))

    async def _check_access(self, ledger: ClosedLedger) -> None:
        """Make one small call to a member: without permission it fails, where a read would get no answer."""
        address = next((address for _, address in ledger.members if address), None)
        if address is not None:
            try:
                await self._cluster.channel(address).call(DESCRIBE, DescribeRequest(), timeout_ms=_PROBE_TIMEOUT_MS)
            except OncelogError as error:
                if not error.retriable:
                    raise

    async def _entry_of(self, storage: NodeCalls, metadata: LedgerMetadata, record: ReadRecord) -> EntryId:
        """The entry with the next message wanted."""

        async def header_at(entry_id: EntryId, _end: EntryId) -> tuple[EntryId, EntryHeader]:
            head = await read_entry(
                storage, metadata, entry_id, headers_only=True, timeout_ms=STORAGE_PATIENCE_MS, record=record
            )
            return entry_id, peek_header(head)

        return await find_entry(metadata.end, partial(side_of_index, self._at), header_at)

    async def _learn_names(self, stored: list[StoredBatch]) -> None:
        ids = {ProducerId(one.batch.producer_id) for one in stored} - self._names.keys() - {NOT_DEDUPLICATED}
        if not ids:
            return
        topic = self._span.topic
        answer = await self._cluster.ask_owner(
            topic,
            PRODUCER_NAMES,
            lambda route: ProducerNamesRequest(
                topic=topic,
                topic_id=route.topic_id,
                producer_ids=sorted(ids),
                owner_epoch_seen=route.owner_epoch,
            ),
        )
        self._names |= {ProducerId(one.producer_id): one.name for one in answer.names}

    def _name_of(self, stored: StoredBatch) -> str | None:
        producer_id = ProducerId(stored.batch.producer_id)
        return None if producer_id == NOT_DEDUPLICATED else self._names.get(producer_id)

    # --- the topic owner ----------------------------------------------------------------------------------------------

    async def _from_owner(self, end: int) -> AsyncIterator[FoundEntry]:
        """What is wanted below `end`, through takeovers."""
        backoff, clock = session_backoff(), asyncio.get_running_loop()
        patience_s = self._cluster.patience_ms / 1000
        deadline_s = clock.time() + patience_s
        start: StartAt = StartIndex(self._at)
        while self._at < end:
            before = self._at
            stream = self._cluster.read_stream(
                self._span.topic, start, topic_id=self._span.topic_id, skip_corrupt=self._skip_corrupt
            )
            trouble: object = "the topic owner has fewer messages than there were"
            try:
                while self._at < end and await self._arrival(stream, deadline_s):
                    entry = stream.take_entry()
                    assert entry is not None, "it has arrived"
                    stored, name = entry
                    if self._take(stored, skipped=self._has_skipped(stream, stored)):
                        yield FoundEntry(stored, name)
                    # Behind the yield: however long Spark takes for an entry, the owner has its time for the next one.
                    deadline_s = clock.time() + patience_s
                if self._at < end and self._has_skipped(stream, None):
                    self._at = end  # the skipped entry was the last one
            except TimeoutError:
                trouble = stream.trouble or "no answer in time"
            except LedgerUnavailable as error:
                logger.warning("%s", error.message)
                trouble = error
            except TopicNotFound:
                self._lose(self._span.end, None)
            except (EntriesLost, UnreadableEntry) as error:
                if self._at > before or not isinstance(start, StartIndex):
                    raise
                if not self._skip_corrupt:
                    raise type(error)(f"{error.message}. {SKIP_ADVICE}", **error.details) from error
                # The owner met the entry while it searched for the number; it may be far from the entry wanted.
                start = self._start_before_search()
                continue
            finally:
                stream.close(ReaderClosed("the range was read"))
            if self._at < end:
                if clock.time() >= deadline_s:
                    if isinstance(trouble, LedgerUnavailable):
                        raise trouble
                    raise DeadlineExceeded(f"cannot read message {self._at} of {self._span.topic}: {trouble}")
                start = StartIndex(self._at)
                await backoff.pause()

    async def _arrival(self, stream: ReadStream, deadline_s: float) -> bool:
        """Wait for an entry. False: the owner has no further one now. Raises TimeoutError, and why the stream ended."""
        while not stream.has_arrived:
            if stream.at_end:
                return False
            async with asyncio.timeout_at(deadline_s):
                await stream.arrival()
        return True

    def _start_before_search(self) -> StartAt:
        """A position at or before the next message wanted, which the owner finds without reading entries."""
        ledger_id = max((one.ledger_id for one in self._closed if one.first <= self._at), default=None)
        return StartEdge.EARLIEST if ledger_id is None else StartMessage(Position(ledger_id, EntryId(0)), 0, True)

    def _has_skipped(self, stream: ReadStream, stored: StoredBatch | None) -> bool:
        """Whether the stream skipped an entry between the last one that was taken and this one (None: the end)."""
        end = None if stored is None else stored.entry.position
        skipped = (Position(LedgerId(s.ledger_id), EntryId(s.entry_id)) for s in stream.skipped.newest)
        return any((self._last is None or s > self._last) and (end is None or s < end) for s in skipped)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _take(self, stored: StoredBatch, *, skipped: bool = False) -> bool:
        """Whether the entry has messages that are wanted. Raises NotFound when there is a gap before it.

        skipped: an entry before it was skipped, whose messages are no gap.
        """
        entry = stored.entry
        self._last = entry.position
        if skipped:
            self._at = max(self._at, min(entry.base_index, self._span.end))
        if entry.base_index > self._at:
            self._lose(min(entry.base_index, self._span.end), entry.base_index)
        if entry.next_index <= self._at or entry.base_index >= self._span.end:
            return False
        self._at = entry.next_index
        return True

    def _lose(self, end: int, kept: int | None) -> None:
        """Messages up to `end` are gone. Raises NotFound unless that is allowed."""
        # Planning passes over numbers that were given up; these were given up since.
        given_up = kept is not None and kept - self._at > GIVEN_UP_INDEXES // 2
        loss = MessageLoss(self._span.topic, self._at, end, kept, given_up)
        if self._fail_on_data_loss:
            refuse_loss([loss])
        logger.warning("%s", loss)
        self._at = end


def _has_messages(data: bytes | bytearray | memoryview) -> bool:
    header = peek_header(data)
    return header.kind == EntryKind.MESSAGES and header.count > 0
