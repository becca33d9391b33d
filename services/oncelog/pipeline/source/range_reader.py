"""Reads the messages of one range: closed ledgers from storage nodes, the rest from the topic's owner.

Rules
- Numbers of messages decide where reading stands. Whoever gives the next entry, it must begin at the number wanted;
  one that begins behind it shows what was trimmed away, and that is never passed over in silence.
- Storage nodes serve those who may see everything. To anybody else, and while none of a ledger's members is reached,
  its owner gives the same entries.
- Entries of storage nodes carry the ids of producers alone; the owner is asked for the names, once for each.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from crc32c import crc32c

from oncelog.client.backoff import session_backoff
from oncelog.client.messages import Stored, open_entry
from oncelog.core.errors import DeadlineExceeded, InvariantViolated, OncelogError, TopicNotFound, UnreadableEntry
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import NOT_DEDUPLICATED, EntryId, Incarnation, LedgerId, OwnerEpoch, Position, ProducerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.ledgers.reader import read_entries, read_entry
from oncelog.ledgers.storage_links import StorageLinks
from oncelog.pipeline.cluster_links import ClusterLinks
from oncelog.pipeline.source.arrow_columns import Found
from oncelog.pipeline.source.offsets import ClosedLedger, Loss, Range, refuse
from oncelog.rpc.owner_codec import PRODUCER_NAMES
from oncelog.rpc.reader_codec import READ, ReadControl, ReaderStart, StartAt, StartEdge, StartIndex, StartMessage
from oncelog.rpc.storage_codec import DESCRIBE
from oncelog.wire.owner_pb2 import ProducerNamesRequest
from oncelog.wire.storage_pb2 import DescribeRequest

WINDOW_BYTES = 4 * 1024 * 1024
#: How long storage nodes are waited for before the owner is asked instead.
STORAGE_PATIENCE_MS = 3_000
_PROBE_TIMEOUT_MS = 3_000

logger = logging.getLogger(__name__)


class RangeReader:
    """Reads one range, once."""

    def __init__(
        self, links: ClusterLinks, range_: Range, *, fail_on_data_loss: bool, skip_corrupt: bool = False
    ) -> None:
        self._links = links
        self._span = range_.span
        self._closed = range_.closed
        self._fail_on_data_loss = fail_on_data_loss
        #: number of the next message wanted
        self._at = range_.span.first
        self._names: dict[ProducerId, str] = {}
        self._skip_corrupt = skip_corrupt
        #: the last entry skipped, until the next one shows how many messages it held
        self._skipped: Position | None = None
        #: whether the owner looks for a number and has sent nothing yet; whether it cannot find one
        self._searches = self._search_fails = False

    async def entries(self) -> AsyncGenerator[Found, None]:
        """The entries that hold messages of the range, in order; the first and the last may hold others, too.

        Raises NotFound where messages are gone and that is not allowed, UnreadableEntry, CorruptEntry,
        DeadlineExceeded, PermissionDenied.
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
                logger.warning("ledger %d is read from its owner: %s", ledger.ledger_id, error.message)
                break
        async for found in self._from_owner(self._span.end):
            yield found

    # --- closed ledgers -----------------------------------------------------------------------------------------------

    async def _from_storage(self, ledger: ClosedLedger, end: int) -> AsyncIterator[Found]:
        """What is wanted below `end`. Raises whatever shows that the owner must be asked instead."""
        metadata = LedgerMetadata(
            ledger.ledger_id, self._span.topic_id, tuple(member for member, _ in ledger.members), 1,
            LedgerState.CLOSED, ledger.last_entry,
        )  # fmt: skip
        storage = StorageLinks(_no_answer, _no_loss, credentials=self._links.credentials)
        storage.update_addresses({member: address for member, address in ledger.members if address})
        try:
            await self._check_access(ledger)
            # Whoever begins with the ledger has nothing to search for; the search is some calls, one after the other.
            first = EntryId(0) if self._at == ledger.first else await self._entry_of(storage, metadata)
            pages = read_entries(storage, metadata, first, ledger.last_entry, timeout_ms=STORAGE_PATIENCE_MS)
            async for page in pages:
                stored = [open_entry(data, crc32c) for _, data in page if _has_messages(data)]
                await self._learn_names(stored)
                for one in stored:
                    if self._at >= end:
                        return
                    for found in self._taken(one):
                        yield found
        finally:
            await storage.close()

    async def _check_access(self, ledger: ClosedLedger) -> None:
        """Ask one member something small: who may not read there hears it now, and not as silence."""
        address = next((address for _, address in ledger.members if address), None)
        if address is not None:
            try:
                await self._links.channel(address).call(DESCRIBE, DescribeRequest(), timeout_ms=_PROBE_TIMEOUT_MS)
            except OncelogError as error:
                if not error.retriable:
                    raise

    async def _entry_of(self, storage: StorageLinks, metadata: LedgerMetadata) -> EntryId:
        """The entry that holds the next message wanted."""
        low, high = EntryId(0), metadata.end
        while low < high:
            middle = EntryId((low + high) // 2)
            head = await read_entry(storage, metadata, middle, headers_only=True, timeout_ms=STORAGE_PATIENCE_MS)
            if peek_header(head).next_index <= self._at:
                low = EntryId(middle + 1)
            else:
                high = middle
        return low

    async def _learn_names(self, stored: list[Stored]) -> None:
        ids = {ProducerId(one.batch.producer_id) for one in stored} - self._names.keys() - {NOT_DEDUPLICATED}
        if not ids:
            return
        topic = self._span.topic
        answer = await self._links.ask_owner(
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

    # --- the owner ----------------------------------------------------------------------------------------------------

    async def _from_owner(self, end: int) -> AsyncIterator[Found]:
        """What is wanted below `end`, through takeovers."""
        backoff = session_backoff()
        loop = asyncio.get_running_loop()
        since, before = loop.time(), self._at
        while self._at < end:
            try:
                async with aclosing(self._stream(end)) as stream:
                    async for found in stream:
                        yield found
                trouble = "it knows fewer messages than were there"
            except OncelogError as error:
                if self._skips(error):
                    continue
                if isinstance(error, UnreadableEntry):
                    message = f"{error.message}. Option onCorrupt=skip passes over such entries"
                    raise UnreadableEntry(message, **error.details) from error
                if not error.retriable:
                    raise
                trouble = error.message
            if self._at > before:
                since, before = loop.time(), self._at
            elif loop.time() - since > self._links.patience_ms / 1000:
                raise DeadlineExceeded(f"message {self._at} of {self._span.topic} is not given: {trouble}")
            if self._at < end:
                await backoff.pause()

    async def _stream(self, end: int) -> AsyncGenerator[Found, None]:
        """One read stream; ends when `end` is reached, or the owner says that there is no more."""
        try:
            route = await self._links.look_up(self._span.topic)
        except TopicNotFound:
            self._lose(self._span.end, None)
            return
        if route.topic_id != self._span.topic_id:
            self._lose(self._span.end, None)
            return
        stream = self._links.channel(route.owner_address).stream(READ)
        at = self._start()
        self._searches = isinstance(at, StartIndex)
        start = ReaderStart(self._span.topic, self._span.topic_id, at, OwnerEpoch(0))
        try:
            await stream.write(ReadControl(start, WINDOW_BYTES))
            async for frame in stream:
                if frame.error is not None:
                    raise frame.error
                self._searches = False
                self._names |= frame.names
                for data in frame.entries:
                    for found in self._taken(open_entry(data, crc32c)):
                        yield found
                    if self._at >= end:
                        return
                if frame.at_end:
                    self._at = self._at if self._skipped is None else end  # the skipped entry was the last one
                    return
                await stream.write(ReadControl(None, sum(map(len, frame.entries))))
        finally:
            stream.cancel()

    def _start(self) -> StartAt:
        """By number, unless an entry that cannot be read stands in the way of the owner's search for it."""
        if self._skipped is not None:
            behind = Position(self._skipped.ledger_id, EntryId(self._skipped.entry_id + 1))
            return StartMessage(behind, 0, inclusive=True)
        if not self._search_fails:
            return StartIndex(self._at)
        ledger_id = max((one.ledger_id for one in self._closed if one.first <= self._at), default=None)
        return StartEdge.EARLIEST if ledger_id is None else StartMessage(Position(ledger_id, EntryId(0)), 0, True)

    def _skips(self, error: OncelogError) -> bool:
        """Whether reading goes on although the owner cannot read an entry."""
        ledger_id, entry_id = error.details.get("ledger_id"), error.details.get("entry_id")
        if not self._skip_corrupt or not isinstance(error, UnreadableEntry):
            return False
        if not isinstance(ledger_id, int) or not isinstance(entry_id, int):
            return False
        if self._searches:
            # The owner met the entry while it looked for the number; that entry may be far from the one wanted.
            self._search_fails, self._searches = True, False
            return True
        position = Position(LedgerId(ledger_id), EntryId(entry_id))
        if self._skipped is not None and position <= self._skipped:
            return False
        self._skipped = position
        logger.warning(
            "%s: entry %s is skipped, with messages from %d on: %s", self._span.topic, position, self._at, error.message
        )
        return True

    # --- both ---------------------------------------------------------------------------------------------------------

    def _taken(self, stored: Stored) -> list[Found]:
        """The entry, unless all of it was read before. Raises NotFound when there is a gap before it."""
        entry = stored.entry
        if self._skipped is not None and entry.position > self._skipped:
            self._at, self._skipped = max(self._at, min(entry.base_index, self._span.end)), None
        if entry.base_index > self._at:
            self._lose(min(entry.base_index, self._span.end), entry.base_index)
        if entry.next_index <= self._at or entry.base_index >= self._span.end:
            return []
        self._at = entry.next_index
        producer_id = ProducerId(stored.batch.producer_id)
        return [Found(stored, None if producer_id == NOT_DEDUPLICATED else self._names.get(producer_id))]

    def _lose(self, end: int, kept: int | None) -> None:
        """Raises NotFound unless what is gone, up to `end`, may be."""
        loss = Loss(self._span.topic, self._at, end, kept)
        if self._fail_on_data_loss:
            refuse([loss])
        logger.warning("%s", loss)
        self._at = end


def _has_messages(data: bytes | bytearray | memoryview) -> bool:
    header = peek_header(data)
    return header.kind == EntryKind.MESSAGES and header.count > 0


def _no_answer(_member: Incarnation, _ledger_id: LedgerId, _entry_ids: object, _status: AppendStatus) -> None:
    """Nothing is added here, so nothing is answered."""


def _no_loss(_member: Incarnation, _ledger_ids: list[LedgerId]) -> None:
    """The same."""
