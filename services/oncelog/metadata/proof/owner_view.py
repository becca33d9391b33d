"""What a proof compares the log of a topic with: the producers that the owner has, page by page, and the newest
snapshot, read from the storage nodes.

The owner is asked which snapshot it has taken before the snapshots are read, and for its producers afterwards. So the
snapshot is not older than the one that was named, and the log up to the producers' position has the snapshot's.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from crc32c import crc32c

from oncelog.core.errors import LogHole, TopicLoading, TopicNotFound
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import EntryId, ProducerId, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.storage_client.losses import read_whole_ledger
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.verify.owner_report import OwnerReport, owner_report
from oncelog.verify.range_join import Share
from oncelog.verify.snapshots import SnapshotSearch

#: How long to wait for storage nodes that do not answer, since the last entry.
PATIENCE_MS = 30_000
SERVING = "serving"
_MONOTONIC = SequenceMode.MONOTONIC


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known before the log is read. modes: of the producers of the share whose ids have no gaps. snapshots:
    `found` has the producers of the share. report: the first page of the share."""

    share: Share
    modes: Mapping[ProducerId, SequenceMode]
    snapshots: SnapshotSearch
    report: OwnerReport


@dataclass(frozen=True, slots=True)
class OwnerViews:
    """Of all topics."""

    topic_calls: TopicCalls
    calls: OwnerCalls
    cursors: CursorStore
    ledgers: LedgerStore
    nodes: NodeCalls

    async def report(self, topic: TopicName, topic_id: TopicId, after: int) -> OwnerReport:
        """The producers of the owner behind the id `after`, some hundred. Raises TopicNotFound if the topic is another
        one by now, and the errors of `TopicCalls.of_owner`."""

        async def ask(owner: LiveOwner, asked: TopicId) -> OwnerReport:
            if asked != topic_id:
                raise TopicNotFound(f"topic {topic} was deleted", topic=str(topic))
            state = await self.calls.state(owner, topic_id, internal=True, producers_after=after)
            if state is None or state.phase != SERVING:
                phase = "unknown" if state is None else state.phase
                raise TopicLoading(f"topic {topic} is {phase} at its owner")
            return owner_report(state.owner_epoch, json.loads(state.stats_json), json.loads(state.internal_stats_json))

        return await self.topic_calls.of_owner(topic, ask)

    async def open(
        self, topic: TopicName, topic_id: TopicId, after: int, throttle: Throttle, *, kept_max: int, through: int | None
    ) -> Opening:
        """The share of the producers behind the id `after`, kept_max at most, or up to `through`. Raises ShareTooLarge
        for a snapshot with more of them, LedgerUnavailable, and the errors of `report`."""
        share, modes, number = Share(after, through), dict[ProducerId, SequenceMode](), 0
        listed = 0
        async for page in self._pages(topic, topic_id, share):
            number = max(number, page.snapshot_number)
            producers = page.live.producers
            modes |= {each: one.mode for each, one in producers.items() if one.mode is not _MONOTONIC}
            listed += len(producers)
            if through is None and page.next_after is not None and listed >= kept_max:
                share = Share(after, page.next_after)
                break
        search = SnapshotSearch(crc32c, taken=number, share=share, kept_max=kept_max)
        await self._search(topic_id, search, throttle)
        return Opening(share, modes, search, await self.report(topic, topic_id, after))

    async def _pages(self, topic: TopicName, topic_id: TopicId, share: Share) -> AsyncIterator[OwnerReport]:
        page = await self.report(topic, topic_id, share.after)
        yield page
        while page.next_after is not None and page.next_after in share:
            page = await self.report(topic, topic_id, page.next_after)
            yield page

    async def _search(self, topic_id: TopicId, search: SnapshotSearch, throttle: Throttle) -> None:
        """Raises LedgerUnavailable, ShareTooLarge."""
        cursor = await self.cursors.read(topic_id, DEDUP_CURSOR)
        read_bytes = 0

        def take(entry_id: EntryId, data: Buffer) -> None:
            nonlocal read_bytes
            read_bytes += len(data)
            with throttle.working():
                search.feed(entry_id, data)

        for link in reversed(cursor.value.ledgers if cursor is not None else ()):
            ledger = await self.ledgers.read(link.ledger_id)
            if ledger is None:
                continue  # a newer one has replaced it
            search.begin()
            try:
                unreadable = await read_whole_ledger(
                    self.nodes, ledger.value, take, timeout_ms=PATIENCE_MS, record=self.ledgers.record
                )
            except LogHole:
                continue
            await throttle.pause(read_bytes)
            read_bytes = 0
            if unreadable:
                search.unreadable(link.ledger_id, unreadable)
            search.conclude()
            if search.found is not None:
                return
