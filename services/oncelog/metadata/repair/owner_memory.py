"""Entries that no storage node has, and the owner of their topic still has in memory: repair stores them again.

Only the present owner is asked: a former one has cleared its memory. An owner that does not answer may have them, so
nothing is called lost until it answers, or the topic has another owner.
"""

import logging

from oncelog.core.errors import CorruptEntry, NotOwner, OncelogError
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.repair.events import EntriesRestored, OwnerMemory, RestoreEntries
from oncelog.metadata.owners.owners import address_of
from oncelog.metadata.repair.copy_requests import CopyRequests, sound
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import CACHED_ENTRIES
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.observing.events import EventKind, EventRing
from oncelog.wire import owner_pb2 as pb

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 5_000
ENTRIES_MAX = 4096


class OwnersMemory:
    """Performs RestoreEntries."""

    def __init__(
        self,
        topics: TopicStore,
        registry: Registry,
        requests: CopyRequests,
        events: EventRing,
        credentials: Credentials = PLAIN,
    ) -> None:
        self._events = events
        self._topics = topics
        self._registry = registry
        self._requests = requests
        self._credentials = credentials

    async def restore(self, effect: RestoreEntries) -> EntriesRestored:
        """Raises nothing: an owner that cannot be asked is SILENT."""
        owner: Incarnation | None = None
        try:
            stored = await self._topics.read(effect.topic_id)
            owner = None if stored is None else stored.value.owner
            if owner is None:
                return EntriesRestored(OwnerMemory.NOTHING)
            live = (await self._registry.owners.live()).get(owner)
            if live is None:
                return EntriesRestored(OwnerMemory.SILENT, owner)  # perhaps it has only lost its session
            channel = Channel(address_of(live), credentials=self._credentials)
            try:
                outcome = await self._restore_from(channel, owner, effect)
            finally:
                await channel.close()
        except NotOwner:
            return EntriesRestored(OwnerMemory.NOTHING, owner)  # it has not taken the topic over yet
        except (OncelogError, CorruptEntry) as error:
            fields = {"ledger_id": effect.ledger_id, "owner": owner or "", "reason": error.message}
            logger.info("could not ask for entries in the owner's memory; will retry", extra={"fields": fields})
            return EntriesRestored(OwnerMemory.SILENT, owner)
        if outcome is OwnerMemory.RESTORED:
            self._events.note(
                EventKind.COPY_FOUND, logger, "entries without a copy were stored again from the owner's memory",
                level="warning", node=owner, ledger_id=effect.ledger_id, target=effect.target,
            )  # fmt: skip
        return EntriesRestored(outcome, owner)

    async def _restore_from(self, channel: Channel, owner: Incarnation, effect: RestoreEntries) -> OwnerMemory:
        outcome = OwnerMemory.NOTHING
        for span in effect.ranges:
            following: int = span.first
            while following <= span.last:
                request = pb.CachedEntriesRequest(
                    target=owner, topic_id=effect.topic_id, ledger_id=effect.ledger_id, first_entry=following,
                    entries_max=min(ENTRIES_MAX, span.last - following + 1),
                )  # fmt: skip
                answer = await channel.call(CACHED_ENTRIES, request, timeout_ms=CALL_TIMEOUT_MS)
                entries = [data for data in answer.entries if _is_asked_for(data, effect, span)]
                if entries:
                    if not await self._requests.store(effect, entries):
                        return OwnerMemory.SILENT  # it has them, and the target did not take them
                    outcome = OwnerMemory.RESTORED
                following = max(answer.next_entry, following + 1)
        return outcome


def _is_asked_for(data: bytes, effect: RestoreEntries, span: EntryRange) -> bool:
    entry_id: EntryId = peek_header(data).entry_id
    return span.first <= entry_id <= span.last and sound(data, effect, entry_id)
