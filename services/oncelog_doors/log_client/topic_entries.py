"""Single entries of topics, in the form that the REST port of a door needs (`rest.ports.EntriesPort`): by their places,
with the rights of the caller."""

import asyncio

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import EntryReader, open_entry_reader
from oncelog.core.access import Caller
from oncelog.core.ids import Position
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.connecting import message_bytes_max
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.log_client.log_reader import last_id_at, prepared
from oncelog_doors.log_client.namespace_grants import NamespaceGrants
from oncelog_doors.log_client.rights import Rights

#: Entries that are read at once, each of at most a few MiB.
_AT_ONCE = 8
#: A reader fetches the first entry whole, and no more than this behind it.
_WINDOW_BYTES = 1


class TopicEntries:
    """Of one door. client: with a token of a superuser, if the cluster wants tokens. batch_bytes_max: the owners'
    setting."""

    def __init__(self, client: AsyncClient, grants: NamespaceGrants, *, batch_bytes_max: int) -> None:
        self._client, self._grants = client, grants
        self._bytes_max = message_bytes_max(batch_bytes_max)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def at(self, topic: TopicName, caller: Caller, position: Position) -> Delivery | None:
        await Rights(caller, topic, self._grants).check(may_create=False)
        async with self._slots:
            reader = await open_entry_reader(
                self._client, str(topic), position, create=False, window_bytes=_WINDOW_BYTES
            )
            try:
                entry = reader.take()
            finally:
                reader.close()
            if entry is None or entry.stored.entry.position != position:
                return None
            return await asyncio.to_thread(prepared, entry, self._bytes_max)

    async def last_id(self, topic: TopicName, caller: Caller) -> DeliveredId | None:
        await Rights(caller, topic, self._grants).check(may_create=False)
        return await last_id_at(EntryReader(topic, network_of(self._client), timeout_ms=None))
