"""A reader of the SDK, in the form that a door needs (`pulsar.ports.ReaderPort`)."""

from collections.abc import Callable
from functools import partial

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import (
    EntryReader,
    EntryStart,
    StartEdge,
    StartTime,
    WholeEntry,
    chunks_of,
    open_entry_reader,
)
from oncelog.core.errors import CorruptEntry, InvalidBatch, OncelogError
from oncelog.core.formats.batch import read_cost
from oncelog.core.ids import Position, TopicId
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.chunked_deliveries import is_in_chunks
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.shared.window_shares import WindowShares
from oncelog_doors.log_client.log_chunks import LogChunks
from oncelog_doors.log_client.partitions import partitions_of
from oncelog_doors.log_client.rights import RIGHTS_EVERY_S, Rights, RightsWatch


class LogReader:
    """Of one client of a door."""

    def __init__(
        self,
        client: AsyncClient,
        reader: EntryReader,
        rights: Rights,
        tasks: BackgroundTasks,
        *,
        every_s: float = RIGHTS_EVERY_S,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """every_s: how often the rights are asked for. closed: called once, when it holds no entries any more."""
        self._closed: Callable[[], None] | None = closed
        self._client, self._reader = client, reader
        #: what is sent of an entry
        self.delivery_of = delivery_of
        self._watch = RightsWatch(rights, tasks, reader.close, every_s=every_s)

    @property
    def before(self) -> Position | None:
        return self._reader.before

    def take(self) -> WholeEntry | None:
        return None if self._watch.denied is not None else self._reader.take()

    async def arrival(self) -> None:
        try:
            await self._reader.arrival()
        except OncelogError as error:
            raise self._watch.denied or error from None

    def chunks_of(self, entry: WholeEntry) -> LogChunks | None:
        raw = raw_of(entry)
        return LogChunks(raw, chunks_of(self._client, self._reader.topic, entry)) if is_in_chunks(raw) else None

    def size_of(self, entry: WholeEntry) -> int:
        _, batch, body = entry.stored
        return read_cost(batch, body)

    def prepare(self, entry: WholeEntry, bytes_max: int) -> Delivery:
        return prepared(entry, bytes_max, self.delivery_of)

    async def last_id(self) -> DeliveredId | None:
        return await last_id_at(self._reader)

    @property
    def topic_id(self) -> TopicId:
        """Raises ReaderClosed when it is closed."""
        return self._reader.topic_id

    def close(self) -> None:
        self._watch.close()
        self._reader.close()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()


async def open_log_reader(
    client: AsyncClient, rights: Rights, start: Start, windows: WindowShares, *, may_create: bool
) -> LogReader:
    """As `ClusterPort.open_reader`. client: with a token of a superuser, if the cluster wants tokens. windows: of all
    readers of the door."""
    creates = await rights.check(may_create=may_create)
    if not creates and rights.topic.partition is not None:
        await partitions_of(network_of(client).lookup, rights.topic)
        creates = True
    return await open_at(client, rights, place_of(start), windows.opened(), windows, create=creates)


async def open_at(
    client: AsyncClient, rights: Rights, place: EntryStart, window_bytes: int, windows: WindowShares, *, create: bool
) -> LogReader:
    """For a caller whose rights were checked. window_bytes: of `windows`, which has it back when the reader is closed,
    or not opened. Raises as `open_entry_reader`."""
    closed = partial(windows.closed, window_bytes)
    try:
        reader = await open_entry_reader(client, str(rights.topic), place, create=create, window_bytes=window_bytes)
    except BaseException:
        closed()
        raise
    return LogReader(client, reader, rights, network_of(client).background, closed=closed)


def prepared(entry: WholeEntry, bytes_max: int, form: Callable[[RawBatch, int], Delivery] = delivery_of) -> Delivery:
    """As `ReaderPort.prepare`. form: what is sent of an entry."""
    try:
        return form(raw_of(entry), bytes_max)
    except InvalidBatch as error:
        raise _corrupt(entry, error) from error


async def last_id_at(reader: EntryReader) -> DeliveredId | None:
    """Of the last message of a topic; None: it has none. Raises as `EntryReader.last_entry`, and CorruptEntry."""
    last = await reader.last_entry()
    if last is None:
        return None
    try:
        return last_id_of(raw_of(last))
    except InvalidBatch as error:
        raise _corrupt(last, error) from error


def place_of(start: Start) -> EntryStart:
    match start:
        case FromFirst():
            return StartEdge.EARLIEST
        case FromEnd():
            return StartEdge.LATEST
        case FromEntry(position):
            return position
        case FromTime(time_ms):
            return StartTime(time_ms)


def raw_of(entry: WholeEntry) -> RawBatch:
    return RawBatch(*entry.stored, entry.producer_name)


def _corrupt(entry: WholeEntry, error: InvalidBatch) -> CorruptEntry:
    return CorruptEntry(f"entry {entry.stored.entry.position} cannot be read: {error}")
