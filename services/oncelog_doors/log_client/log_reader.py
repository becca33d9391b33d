"""A reader of the SDK, in the form that a door needs (`pulsar.ports.ReaderPort`)."""

from collections.abc import Callable
from functools import partial

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import EntryReader, EntryStart, StartEdge, StartTime, WholeEntry, open_entry_reader
from oncelog.core.errors import CorruptEntry, InvalidBatch, OncelogError
from oncelog.core.ids import Position
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.shared.window_shares import WindowShares
from oncelog_doors.log_client.partitions import partitions_of
from oncelog_doors.log_client.rights import RIGHTS_EVERY_S, Rights, RightsWatch


class LogReader:
    """Of one client of a door."""

    def __init__(
        self,
        reader: EntryReader,
        rights: Rights,
        tasks: BackgroundTasks,
        *,
        every_s: float = RIGHTS_EVERY_S,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """every_s: how often the rights are asked for. closed: called once, when it holds no entries any more."""
        self._closed: Callable[[], None] | None = closed
        self._reader = reader
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

    def size_of(self, entry: WholeEntry) -> int:
        return len(entry.stored.body)

    def prepare(self, entry: WholeEntry, bytes_max: int) -> Delivery:
        return prepared(entry, bytes_max)

    async def last_id(self) -> DeliveredId | None:
        return await last_id_at(self._reader)

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
    name, window_bytes = str(rights.topic), windows.opened()
    closed = partial(windows.closed, window_bytes)
    try:
        reader = await open_entry_reader(client, name, place_of(start), create=creates, window_bytes=window_bytes)
    except BaseException:
        closed()
        raise
    return LogReader(reader, rights, network_of(client).background, closed=closed)


def prepared(entry: WholeEntry, bytes_max: int) -> Delivery:
    """As `ReaderPort.prepare`."""
    try:
        return delivery_of(raw_of(entry), bytes_max)
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
