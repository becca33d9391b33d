"""A reader of the SDK, in the form that a door needs (`pulsar.ports.ReaderPort`).

The door reads with its own rights, which are those of a superuser. So it asks for the rights of the client's role
before it opens the reader, and every 30 s while it is open. A role that has lost its right gets nothing more.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import EntryReader, EntryStart, StartEdge, StartTime, WholeEntry, open_entry_reader
from oncelog.core.access import Caller
from oncelog.core.errors import CorruptEntry, InvalidBatch, OncelogError, PermissionDenied
from oncelog.core.ids import Position
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.shared.reading_rights import may_read
from oncelog_doors.core.shared.window_shares import WindowShares
from oncelog_doors.log_client.namespace_grants import NamespaceGrants

RIGHTS_EVERY_S = 30.0


class Rights(NamedTuple):
    """The right of a caller to read a topic."""

    caller: Caller
    topic: TopicName
    grants: NamespaceGrants

    async def check(self, *, may_create: bool, age_s: float = 0.0) -> bool:
        """Whether the caller may create the topic, too. may_create: it wants that. age_s: how old the answer may be.
        Raises PermissionDenied, and as `NamespaceGrants.of`."""
        if self.caller.superuser:
            return may_create
        grants = await self.grants.of(str(self.topic.namespace_name), age_s=age_s)
        return may_read(self.caller, grants, self.topic, may_create=may_create)


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
        self._every_s = every_s
        self._rights = rights
        #: why the client gets nothing more
        self._ended: OncelogError | None = None
        watch = None if rights.caller.superuser else tasks.start(self._watch(), what=f"the rights of {rights.topic}")
        self._watching: asyncio.Task[None] | None = watch

    @property
    def before(self) -> Position | None:
        return self._reader.before

    def take(self) -> WholeEntry | None:
        return None if self._ended is not None else self._reader.take()

    async def arrival(self) -> None:
        try:
            await self._reader.arrival()
        except OncelogError as error:
            raise self._ended or error from None

    def size_of(self, entry: WholeEntry) -> int:
        return len(entry.stored.body)

    def prepare(self, entry: WholeEntry, bytes_max: int) -> Delivery:
        try:
            return delivery_of(_raw(entry), bytes_max)
        except InvalidBatch as error:
            raise _corrupt(entry, error) from error

    async def last_id(self) -> DeliveredId | None:
        last = await self._reader.last_entry()
        if last is None:
            return None
        try:
            return last_id_of(_raw(last))
        except InvalidBatch as error:
            raise _corrupt(last, error) from error

    async def _watch(self) -> None:
        while self._ended is None:
            await asyncio.sleep(self._every_s)
            try:
                await self._rights.check(may_create=False, age_s=self._every_s / 2)
            except PermissionDenied as error:
                self._ended = error
                self._reader.close()
            except OncelogError:
                pass  # no answer: it is asked again

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
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
    name, window_bytes = str(rights.topic), windows.opened()
    closed = partial(windows.closed, window_bytes)
    try:
        reader = await open_entry_reader(client, name, _placed(start), create=creates, window_bytes=window_bytes)
    except BaseException:
        closed()
        raise
    return LogReader(reader, rights, network_of(client).background, closed=closed)


def _placed(start: Start) -> EntryStart:
    match start:
        case FromFirst():
            return StartEdge.EARLIEST
        case FromEnd():
            return StartEdge.LATEST
        case FromEntry(position):
            return position
        case FromTime(time_ms):
            return StartTime(time_ms)


def _raw(entry: WholeEntry) -> RawBatch:
    return RawBatch(*entry.stored, entry.producer_name)


def _corrupt(entry: WholeEntry, error: InvalidBatch) -> CorruptEntry:
    return CorruptEntry(f"entry {entry.stored.entry.position} cannot be read: {error}")
