"""Which owner serves which topic: look-ups place what has no owner, and what a lost owner had is placed anew at once.

Rules
- Decisions are core.placement's, one topic at a time (`placer`); here is who asks for them and who is told.
- The table of topics by owner is what this replica placed or looked up. A loss moves those first, without a read, and
  then reads all topic records for what other replicas placed there. A topic that nobody could take waits for its next
  look-up.
- An owner is told of a topic on its stream, or by a call if it has none here; again when somebody who knows the present
  epoch asks again, for an assignment may be lost with its stream.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from oncelog.core.coordination.placement import NotifyOwner, PlacementRequested, TopicPlaced, UnloadRequested
from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable, TopicNotFound
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.metadata.coordination.owner_calls import OwnerCalls
from oncelog.metadata.coordination.owner_link import Assignment
from oncelog.metadata.coordination.owners import Owners, Start
from oncelog.metadata.coordination.topic_placer import PlacementParts, TopicPlacer, now_ms
from oncelog.stores.topic_store import TopicStore

logger = logging.getLogger(__name__)

#: Topics of a lost owner that are placed anew at the same time.
MOVES_MAX = 64
#: Topics that an owner which drains closes for one replica at the same time: the pause of each is its own hand-over
#: alone, and the others go on meanwhile.
HAND_OVERS_MAX = 4
#: Between two tries to move a topic that the back-off holds.
MOVE_RETRY_MS = 100
SCAN_RETRY_MS = 200
#: An owner is not told of the same epoch more often than this.
TELL_AGAIN_MS = 200
#: Placers are forgotten beyond this, those at rest.
PLACERS_MAX = 4_096


@dataclass(slots=True)
class KnownPlacement:
    """Where a topic was when last looked at, and when its owner was told so (None: not by this replica)."""

    owner: Incarnation
    owner_epoch: OwnerEpoch
    told_ms: int | None = None


class Placements:
    """All topics' placements of one replica."""

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
        #: what happened since the start, by name
        self.counts: Counter[str] = Counter()

    async def place(self, topic_id: TopicId, *, owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)) -> TopicPlaced | None:
        """Who owns the topic, placing it if it has no live owner; None: there is none to place it on.

        owner_epoch_seen: who knows the present epoch and asks again did not find the topic there.
        Raises TopicNotFound, CorruptEntry.
        """
        placed = await self._placer(topic_id).ask(PlacementRequested(topic_id))
        if placed is not None and placed.owner_epoch < owner_epoch_seen:
            # It joined a round whose read is older than the question.
            placed = await self._placer(topic_id).ask(PlacementRequested(topic_id))
        if placed is not None and owner_epoch_seen >= placed.owner_epoch and self._drains(placed.owner):
            # Closed there already, or about to be: whoever waits for it goes before the rest.
            await self._move_off(topic_id, placed.owner, self._moving)
            placed = await self._placer(topic_id).ask(PlacementRequested(topic_id))
        if placed is not None:
            self._tell_if_due(placed, again=owner_epoch_seen >= placed.owner_epoch)
        return placed

    async def unload(self, topic_id: TopicId) -> None:
        """Let the owner close the topic, and place it on another, or on the same at a higher epoch.

        Raises TopicNotFound, CorruptEntry, StoreUnavailable.
        """
        stored = await self._topics.read(topic_id)
        if stored is None:
            raise TopicNotFound(f"there is no topic {topic_id}", topic_id=topic_id)
        if stored.value.owner is not None:
            await self._unload(topic_id, stored.value.owner)

    async def move(self, topic_id: TopicId, owner: Incarnation) -> None:
        """As `unload` does, if `owner` still has the topic. Raises TopicNotFound, CorruptEntry."""
        self.counts["topics_moved"] += 1
        await self._unload(topic_id, owner)

    def owner_lost(self, owner: Incarnation) -> None:
        """Place its topics anew."""
        self.counts["owners_lost"] += 1
        self._start(self._move_all(owner))

    def owner_drains(self, owner: Incarnation) -> None:
        """Move its topics to others a few at a time, each after it was closed; with no other they stay."""
        self._start(self._drain_all(owner))

    # --- what placers report ------------------------------------------------------------------------------------------

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
        self._tell(order.topic_id, KnownPlacement(order.owner, order.owner_epoch))

    def _tell_if_due(self, placed: TopicPlaced, *, again: bool) -> None:
        known = self._known.get(placed.topic_id)
        if known is None or known.told_ms is None or (again and now_ms() - known.told_ms > TELL_AGAIN_MS):
            self._tell(placed.topic_id, KnownPlacement(placed.owner, placed.owner_epoch))

    def _tell(self, topic_id: TopicId, known: KnownPlacement) -> None:
        known.told_ms = now_ms()
        self._known[topic_id] = known
        link = self._owners.link(known.owner)
        if link is not None and not link.assignments.full():
            link.assignments.put_nowait(Assignment(topic_id, known.owner_epoch))
        else:
            self._start(self._call(topic_id, known))

    async def _call(self, topic_id: TopicId, known: KnownPlacement) -> None:
        owner = self._owners.find(known.owner)
        try:
            if owner is not None:
                await self._calls.assign(owner, topic_id, known.owner_epoch)
                return
        except OncelogError as error:
            logger.warning("an owner was not told of a topic: %s", error.message)
        known.told_ms = None  # whoever looks the topic up next has it told again

    # --- owners that go -----------------------------------------------------------------------------------------------

    async def _move_all(self, owner: Incarnation) -> None:
        began_ms = now_ms()
        known = self._topics_of(owner)
        await asyncio.gather(*(self._move(topic_id, owner) for topic_id in known))
        elsewhere = [topic_id for topic_id in await self._scan(owner) if topic_id not in known]
        await asyncio.gather(*(self._move(topic_id, owner) for topic_id in elsewhere))
        fields = {"owner": owner, "topics": len(known) + len(elsewhere), "ms": now_ms() - began_ms}
        logger.info("the topics of a lost owner are placed anew", extra={"fields": fields})

    async def _move(self, topic_id: TopicId, owner: Incarnation) -> None:
        """Place the topic anew, in spite of a back-off that holds it for a while."""
        while self._owners.is_lost(owner):
            try:
                async with self._moving:
                    placed = await self.place(topic_id)
            except (TopicNotFound, CorruptEntry) as error:
                logger.warning("a topic of a lost owner cannot be placed: %s", error.message)
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

    async def _move_off(self, topic_id: TopicId, owner: Incarnation, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            if not any(other.incarnation != owner for other in self._owners.usable):
                return
            try:
                await self._unload(topic_id, owner)
            except (TopicNotFound, CorruptEntry) as error:
                logger.warning("a topic of a draining owner cannot be moved: %s", error.message)

    async def _unload(self, topic_id: TopicId, owner: Incarnation) -> None:
        live = self._owners.find(owner)
        if live is not None and not self._owners.is_lost(owner):
            try:
                await self._calls.unload(live, topic_id)
            except OncelogError as error:
                if not error.retriable:
                    raise
                # It does not hold the topic, or does not answer: its next owner recovers what it left open.
                logger.info("a topic was not closed by its owner: %s", error.message)
        await self._placer(topic_id).ask(UnloadRequested(topic_id, owner))

    def _topics_of(self, owner: Incarnation) -> list[TopicId]:
        return [topic_id for topic_id, known in self._known.items() if known.owner == owner]

    async def _scan(self, owner: Incarnation) -> list[TopicId]:
        """Every topic whose record names the owner; a damaged one is told, and left."""
        while True:
            found: list[TopicId] = []
            try:
                async for record in self._topics.each():
                    if isinstance(record, CorruptEntry):
                        logger.error("a topic record is damaged: %s", record.message)
                    elif record.owner == owner:
                        found.append(record.topic_id)
            except StoreUnavailable as error:
                logger.warning("the topic records cannot be listed yet: %s", error.message)
                await asyncio.sleep(SCAN_RETRY_MS / 1000)
            else:
                return found
