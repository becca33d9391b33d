"""Balancing of topics over topic owners (`core.placement.balance`), by one elected replica.

The replica with the lowest registration number is elected. Each owner reports its number of topics on its stream; the
topic records are read only when these numbers are uneven. A move does what an operator's unload does: the owner closes
the topic, then the topic is placed again.
"""

import asyncio
import logging
from collections.abc import Callable

from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.placement.balance import Balance, BalanceEffect, MoveTopic, OwnersCounted, ReadTopics, TopicsRead
from oncelog.metadata.owners.connected_owner import now_ms
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata.placement.placements import Placements
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.runtime.observing.events import EventKind

logger = logging.getLogger(__name__)

#: In balancing intervals: how long the set of owners must be unchanged, and how long a topic must stay on its owner.
SETTLE_INTERVALS = 2
REST_INTERVALS = 6


class Balancer:
    """`follow` and `run` live as long as the process."""

    def __init__(
        self,
        registry: Registry,
        topics: TopicStore,
        owners: Owners,
        placements: Placements,
        *,
        own_name: Callable[[], str | None],
        interval_ms: int,
    ) -> None:
        """own_name: the name of this replica's registration; None while it is not registered."""
        self._registry = registry
        self._topics = topics
        self._owners = owners
        self._placements = placements
        self._own_name = own_name
        self._interval_ms = interval_ms
        self._core: Balance | None = None
        #: name of the elected replica, as last read
        self._first: str | None = None

    @property
    def elected(self) -> bool:
        """Whether this replica is elected."""
        return self._first is not None and self._first == self._own_name()

    async def follow(self) -> None:
        """Follow the election; never returns."""
        async for replicas in self._registry.metadata.watch():
            was = self.elected
            self._first = min(replicas, default=None)
            if self.elected != was:
                logger.info(
                    "this replica is elected to balance topics"
                    if self.elected
                    else "another replica is elected to balance topics"
                )

    async def run(self) -> None:
        """Balance while elected; never returns."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.round()

    async def round(self) -> None:
        """Compare the owners once, and make the resulting moves one after the other."""
        if not self.elected:
            self._core = None
            return
        if self._core is None:
            settle_ms, rest_ms = SETTLE_INTERVALS * self._interval_ms, REST_INTERVALS * self._interval_ms
            self._core = Balance(settle_ms=settle_ms, rest_ms=rest_ms)
        try:
            await self._perform(self._core.handle(OwnersCounted(self._counts(), now_ms())), self._core)
        except StoreUnavailable as error:
            logger.info("could not balance topics; will retry: %s", error.message)

    def _counts(self) -> dict[Incarnation, int]:
        """{owner: number of topics}, for owners that take topics and have a stream at this replica."""
        links = {owner.incarnation: self._owners.link(owner.incarnation) for owner in self._owners.usable}
        return {owner: link.topic_count for owner, link in links.items() if link is not None}

    async def _perform(self, effects: list[BalanceEffect], core: Balance) -> None:
        for effect in effects:
            match effect:
                case ReadTopics():
                    await self._perform(core.handle(TopicsRead(await self._read(), now_ms())), core)
                case MoveTopic():
                    await self._move(effect)

    async def _read(self) -> dict[TopicId, tuple[Incarnation, OwnerEpoch]]:
        found: dict[TopicId, tuple[Incarnation, OwnerEpoch]] = {}
        async for record in self._topics.each():
            if not isinstance(record, CorruptEntry) and record.owner is not None:
                found[record.topic_id] = (record.owner, record.owner_epoch)
        return found

    async def _move(self, order: MoveTopic) -> None:
        self._owners.events.note(
            EventKind.BALANCE, logger, "moving a topic to balance owners", node=order.owner, topic_id=order.topic_id
        )
        try:
            await self._placements.move(order.topic_id, order.owner)
        except OncelogError as error:
            logger.warning("could not move a topic to balance owners: %s", error.message)
