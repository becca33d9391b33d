"""A reader of the SDK, in the form that a door needs (`pulsar.ports.ReaderPort`).

The door reads with its own rights, which are those of a superuser. So it asks for the rights of the client's role
before it opens the reader, and every 30 s while it is open. A role that has lost its right gets nothing more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import EntryReader, EntryStart, StartEdge, StartTime, WholeEntry, open_entry_reader
from oncelog.client.rest_calls import rest
from oncelog.core.access import Caller
from oncelog.core.errors import CorruptEntry, InvalidBatch, OncelogError, PermissionDenied
from oncelog.core.ids import Position
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId, FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.shared.reading_rights import may_read

#: Entries that wait for one client: enough for a fast one, and little for a thousand that read nothing.
WINDOW_BYTES = 1024 * 1024
RIGHTS_EVERY_S = 30.0
#: Of reading the rights of a namespace. Clients wait 30 s for SUBSCRIBE, and repeat it.
_RIGHTS_TIMEOUT_MS = 10_000

Grants = Mapping[str, Sequence[str]]


class Rights(NamedTuple):
    """The right of a caller to read a topic. grants_of: asks for the rights of its namespace."""

    caller: Caller
    topic: TopicName
    grants_of: Callable[[TopicName], Awaitable[Grants]]

    async def check(self, *, may_create: bool) -> bool:
        """Whether the caller may create the topic, too. may_create: it wants that. Raises PermissionDenied, and what
        `grants_of` raises."""
        if self.caller.superuser:
            return may_create
        return may_read(self.caller, await self.grants_of(self.topic), self.topic, may_create=may_create)


class LogReader:
    """Of one client of a door."""

    def __init__(
        self, reader: EntryReader, rights: Rights, tasks: BackgroundTasks, *, every_s: float = RIGHTS_EVERY_S
    ) -> None:
        """every_s: how often the rights are asked for."""
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
                await self._rights.check(may_create=False)
            except PermissionDenied as error:
                self._ended = error
                self._reader.close()
            except OncelogError:
                pass  # nobody can say: it is asked again

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._reader.close()


async def open_log_reader(
    client: AsyncClient, tasks: BackgroundTasks, topic: TopicName, caller: Caller, start: Start, *, may_create: bool
) -> LogReader:
    """As `ClusterPort.open_reader`. client: with a token of a superuser, if the cluster wants tokens."""
    rights = Rights(caller, topic, lambda topic: _grants_of(client, topic))
    creates = await rights.check(may_create=may_create)
    reader = await open_entry_reader(client, str(topic), _placed(start), create=creates, window_bytes=WINDOW_BYTES)
    return LogReader(reader, rights, tasks)


async def _grants_of(client: AsyncClient, topic: TopicName) -> Grants:
    path = f"/admin/v2/namespaces/{topic.namespace_name}/permissions"
    grants: Grants = await rest(client, "GET", path, timeout_ms=_RIGHTS_TIMEOUT_MS)
    return grants


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
