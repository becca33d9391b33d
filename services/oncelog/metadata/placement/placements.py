"""Placement of all topics: a look-up places a topic without an owner, and a lost owner's topics are placed at once.

Rules
- `core.placement.topic_placement` decides, one topic at a time (`topic_placer`). This module requests the decisions
  and sends the assignments.
- The table of topics holds what this replica placed or looked up. When an owner is lost, these topics are moved first,
  without a read; then all topic records are read for topics that other replicas placed on that owner. A topic that no
  owner could take waits for its next look-up.
- An assignment goes to the owner on its stream, or by a unary call if it has no stream here. It is sent again when a
  client that already has the current epoch looks the topic up again, because an assignment may be lost with its stream.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable, TopicNotFound
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.placement.topic_placement import NotifyOwner, PlacementRequested, TopicPlaced, UnloadRequested
from oncelog.metadata.owners.connected_owner import Assignment, now_ms
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.owners.owners import Owners, Start
from oncelog.metadata.placement.topic_placer import PlacementParts, TopicPlacer
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.answers import until_answered
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.runtime.observing.events import EventKind

logger = logging.getLogger(__name__)

#: Topics of a lost owner that are placed concurrently.
MOVES_MAX = 64
#: Topics of a draining owner that one replica hands over concurrently. Each pauses only for its own hand-over; the
#: others continue to be served.
HAND_OVERS_MAX = 4
#: Between two attempts to move a topic whose placement is in back-off.
MOVE_RETRY_MS = 100
#: Minimum time between two assignments of the same topic and epoch.
REASSIGN_AFTER_MS = 200
#: Above this number of placers, idle ones are dropped.
PLACERS_MAX = 4_096


@dataclass(slots=True)
class KnownPlacement:
    """Where a topic was last seen. assigned_ms: when this replica last sent the assignment; None: never."""

    owner: Incarnation
    owner_epoch: OwnerEpoch
    assigned_ms: int | None = None


class Placements:
    """Places all topics for one replica."""

    def __init__(self, topics: TopicStore, owners: Owners, calls: OwnerCalls, start: Start) -> None:
        self._owners = owners
        self._calls = calls
        self._topics = topics
        self._start = start
        self._parts = PlacementParts(topics, owners, start, self._placed, self._notify)
        self._placers: dict[TopicId, TopicPlacer] = {}
        self._known: dict[TopicId, KnownPlacement] = {}
        self._moving = asyncio.Semaphore(MOVES_MAX)
        self._handing_over = asyncio.Semaphore(HAND_OVERS_MAX)
        #: counters since the start, by name
        self.counts: Counter[str] = Counter()

    async def place(
        self,
        topic_id: TopicId,
        *,
        owner_epoch_seen: OwnerEpoch = OwnerEpoch(0),
        record: Versioned[TopicRecord] | None = None,
    ) -> TopicPlaced | None:
        """The topic's owner, after placing it if it has no live owner; None: no owner can take it.

        owner_epoch_seen: the epoch that the caller already has. If it is the current one, then the caller did not find
        the topic at that owner. record: of a topic that was just created, so that it need not be read.
        Raises TopicNotFound, CorruptEntry.
        """
        placed = await self._placer(topic_id).ask(PlacementRequested(topic_id), record)
        if placed is not None and placed.owner_epoch < owner_epoch_seen:
            # The request joined a round that had read the record before the caller's epoch was written.
            placed = await self._placer(topic_id).ask(PlacementRequested(topic_id))
        if placed is not None and owner_epoch_seen >= placed.owner_epoch and self._drains(placed.owner):
            # The draining owner has closed the topic or is about to. A client waits for this topic, so it goes first.
            await self._move_off(topic_id, placed.owner, self._moving)
            placed = await self._placer(topic_id).ask(PlacementRequested(topic_id))
        if placed is not None:
            self._assign_if_due(placed, again=owner_epoch_seen >= placed.owner_epoch)
        return placed

    async def unload(self, topic_id: TopicId) -> None:
        """Make the owner close the topic, and place it on another owner, or on the same one at a higher epoch.

        Raises TopicNotFound, CorruptEntry, StoreUnavailable.
        """
        stored = await self._topics.read(topic_id)
        if stored is None:
            raise TopicNotFound(f"topic {topic_id} does not exist", topic_id=topic_id)
        if stored.value.owner is not None:
            await self._unload(topic_id, stored.value.owner)

    async def move(self, topic_id: TopicId, owner: Incarnation) -> None:
        """As `unload`, if `owner` still has the topic. Raises TopicNotFound, CorruptEntry."""
        self.counts["topics_moved"] += 1
        await self._unload(topic_id, owner)

    def owner_lost(self, owner: Incarnation) -> None:
        """Place the owner's topics on other owners."""
        self.counts["owners_lost"] += 1
        self._start(self._move_all(owner))

    def owner_drains(self, owner: Incarnation) -> None:
        """Hand the owner's topics over, HAND_OVERS_MAX at a time. They stay if there is no other owner."""
        self._start(self._drain_all(owner))

    # --- assignments --------------------------------------------------------------------------------------------------

    def _placer(self, topic_id: TopicId) -> TopicPlacer:
        placer = self._placers.get(topic_id)
        if placer is None:
            if len(self._placers) >= PLACERS_MAX:
                self._placers = {known: placer for known, placer in self._placers.items() if not placer.idle}
            placer = self._placers[topic_id] = TopicPlacer(topic_id, self._parts)
        return placer

    def _placed(self, placed: TopicPlaced) -> None:
        known = self._known.get(placed.topic_id)
        if known is None or (known.owner, known.owner_epoch) != (placed.owner, placed.owner_epoch):
            self._known[placed.topic_id] = KnownPlacement(placed.owner, placed.owner_epoch)

    def _notify(self, order: NotifyOwner) -> None:
        self.counts["topics_placed"] += 1
        self._assign(order.topic_id, KnownPlacement(order.owner, order.owner_epoch))

    def _assign_if_due(self, placed: TopicPlaced, *, again: bool) -> None:
        known = self._known.get(placed.topic_id)
        if known is None or known.assigned_ms is None or (again and now_ms() - known.assigned_ms > REASSIGN_AFTER_MS):
            self._assign(placed.topic_id, KnownPlacement(placed.owner, placed.owner_epoch))

    def _assign(self, topic_id: TopicId, known: KnownPlacement) -> None:
        known.assigned_ms = now_ms()
        self._known[topic_id] = known
        link = self._owners.link(known.owner)
        if link is not None and not link.assignments.full():
            link.assignments.put_nowait(Assignment(topic_id, known.owner_epoch))
        else:
            self._start(self._assign_by_call(topic_id, known))

    async def _assign_by_call(self, topic_id: TopicId, known: KnownPlacement) -> None:
        owner = self._owners.find(known.owner)
        try:
            if owner is not None:
                await self._calls.assign(owner, topic_id, known.owner_epoch)
                return
        except OncelogError as error:
            logger.warning(
                "could not send an assignment to a topic owner; will retry at the next look-up: %s", error.message
            )
        known.assigned_ms = None  # the next look-up sends it again

    # --- lost and draining owners -------------------------------------------------------------------------------------

    async def _move_all(self, owner: Incarnation) -> None:
        began_ms = now_ms()
        known = self._topics_of(owner)
        await asyncio.gather(*(self._move(topic_id, owner) for topic_id in known))
        elsewhere = [topic_id for topic_id in await self._scan(owner) if topic_id not in known]
        await asyncio.gather(*(self._move(topic_id, owner) for topic_id in elsewhere))
        if not known and not elsewhere:
            return  # another replica was faster, or it had none
        self._owners.events.note(
            EventKind.OWNER, logger, "placed the topics of a lost owner", node=owner,
            topics=len(known) + len(elsewhere), ms=now_ms() - began_ms,
        )  # fmt: skip

    async def _move(self, topic_id: TopicId, owner: Incarnation) -> None:
        """Place the topic, retrying while its placement is in back-off."""
        while self._owners.is_lost(owner):
            try:
                async with self._moving:
                    placed = await self.place(topic_id)
            except (TopicNotFound, CorruptEntry) as error:
                logger.warning("could not place a topic of a lost owner: %s", error.message)
                self._known.pop(topic_id, None)
                return
            if placed is None or placed.owner != owner:
                return
            await asyncio.sleep(MOVE_RETRY_MS / 1000)

    async def _drain_all(self, owner: Incarnation) -> None:
        known = self._topics_of(owner)
        await asyncio.gather(*(self._move_off(topic_id, owner, self._handing_over) for topic_id in known))
        topic_ids = await self._scan(owner)
        await asyncio.gather(*(self._move_off(topic_id, owner, self._handing_over) for topic_id in topic_ids))

    def _drains(self, owner: Incarnation) -> bool:
        live = self._owners.find(owner)
        return live is not None and self._owners.drains(live)

    async def _move_off(self, topic_id: TopicId, owner: Incarnation, limit: asyncio.Semaphore) -> None:
        async with limit:
            if not any(other.incarnation != owner for other in self._owners.usable):
                return
            try:
                await self._unload(topic_id, owner)
            except (TopicNotFound, CorruptEntry) as error:
                logger.warning("could not move a topic of a draining owner: %s", error.message)

    async def _unload(self, topic_id: TopicId, owner: Incarnation) -> None:
        live = self._owners.find(owner)
        if live is not None and not self._owners.is_lost(owner):
            try:
                await self._calls.unload(live, topic_id)
            except OncelogError as error:
                if not error.retriable:
                    raise
                # The owner does not hold the topic, or does not answer. The next owner recovers the open ledger.
                logger.info("the owner did not close the topic; its next owner will recover it: %s", error.message)
        await self._placer(topic_id).ask(UnloadRequested(topic_id, owner))

    def _topics_of(self, owner: Incarnation) -> list[TopicId]:
        return [topic_id for topic_id, known in self._known.items() if known.owner == owner]

    async def _scan(self, owner: Incarnation) -> list[TopicId]:
        return await until_answered("the topic records", lambda: self._owned_by(owner), retried=(StoreUnavailable,))

    async def _owned_by(self, owner: Incarnation) -> list[TopicId]:
        """Every topic whose record names the owner. Damaged records are logged and skipped."""
        found: list[TopicId] = []
        async for record in self._topics.each():
            if isinstance(record, CorruptEntry):
                logger.error("a topic record is corrupt: %s", record.message)
            elif record.owner == owner:
                found.append(record.topic_id)
        return found
