"""The positions of consumers at the source of a mirror, moved to the target.

    acknowledged at the source below m -> in the target, behind what is copied of it -> acknowledged there

Rules
- The position at the target is found from the origins of what is stored there, so it is never ahead of the copies
  (hazard position-ahead-of-the-copy).
- It passes copies of this source only. In front of a message that was published at the target it stays: whether that
  was consumed is not known. So positions are of use where the mirror goes one way.
- It only goes forward, and only while no consumer is connected there: it is moved by a consumer of its own, of type
  exclusive, which receives nothing, so no delivery is counted.
- Left out are the subscriptions of mirrors, and those whose effects are in a store: the store has their position.
- What is acknowledged out of order at the source, above m, is delivered at the target.
"""

import logging
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from oncelog.client.client import AsyncClient, adopt, network_of
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.consuming.subscribing import consumer_settings
from oncelog.client.rest_calls import owner_stats
from oncelog.client.stored import stored_batches
from oncelog.core.errors import ConsumerBusy, SubscriptionTypeMismatch
from oncelog.core.formats.message_id import Index
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.events import ConsumerSettings
from oncelog_effects.mirror.topics import MIRROR_SUBSCRIPTION
from oncelog_effects.topic_store import topic_id_of

logger = logging.getLogger(__name__)

#: Messages of the target that are looked at for one subscription at once; then the next one has its turn.
_LOOKED_AT_MAX = 100_000


class Origins(NamedTuple):
    """Of which copies positions are translated."""

    cluster_id: str
    topic_id: str


async def origins_of(source: AsyncClient, part: TopicName) -> Origins:
    """Of the copies of one log of the source. A missing one is created."""
    topic_id = await topic_id_of(source, part)
    return Origins(network_of(source).lookup.cluster_id, topic_id)


async def copy_positions(
    source: AsyncClient, target: AsyncClient, topic: TopicName, origins: Origins
) -> dict[str, int]:
    """Create the source's subscriptions at the target, and move them on. topic: without partitions, or one partition.

    Returns {subscription that was created or moved: index of the first message at the target that is not
    acknowledged}. Raises what REST and consumers raise.
    """
    here, there = await subscriptions_of(source, topic), await subscriptions_of(target, topic)
    moved: dict[str, int] = {}
    for name, found in here.items():
        if name.startswith(MIRROR_SUBSCRIPTION) or found["effects"] is not None:
            continue
        known = there.get(name)
        if known is not None and (known["consumer_count"] or known["effects"] is not None):
            continue
        before = 0 if known is None else int(known["mark_delete"])
        position = await _covered(target, topic, before, int(found["mark_delete"]), origins)
        if known is not None and position <= before:
            continue
        try:
            await _move(target, topic, name, position)
        except (ConsumerBusy, SubscriptionTypeMismatch):
            continue  # a consumer has come: from now on its own acknowledgements count
        moved[name] = position
    return moved


async def subscriptions_of(client: AsyncClient, topic: TopicName) -> dict[str, dict[str, Any]]:
    """{name: statistics}."""
    return dict((await owner_stats(client, topic))["subscriptions"])


async def _covered(target: AsyncClient, topic: TopicName, position: int, below: int, origins: Origins) -> int:
    """The first index from `position` on whose message is no copy, or one of index `below` or above, or the end."""
    looked_at = 0
    async with aclosing(stored_batches(target, str(topic), Index(position))) as batches:
        async for batch in batches:
            position = max(position, batch.first_index)
            origin = batch.origin_of(0)
            if origin is None or Origins(origin.cluster_id, origin.message_id.topic_id) != origins:
                break
            passed = min(max(0, below - origin.index), batch.count)
            position += passed
            looked_at += batch.count
            if passed < batch.count or looked_at >= _LOOKED_AT_MAX:
                break
    return position


class _Mover(AsyncConsumer):
    """Gets no messages."""

    def _add(self, topic: TopicName, settings: ConsumerSettings) -> None:
        super()._add(topic, replace(settings, receive_window=0))

    async def move(self, below: int) -> None:
        driver: ConsumerDriver
        (driver,) = self._drivers
        while not driver.generation:
            self._check_open()
            await self._change()
        (runs,) = self._partitions.values()
        await runs.acks.add_below(driver.seek_epoch, driver.generation, below)


async def _move(client: AsyncClient, topic: TopicName, subscription: str, below: int) -> None:
    """Acknowledge everything below this index. Raises ConsumerBusy, SubscriptionTypeMismatch."""
    settings = consumer_settings(subscription, "exclusive", None, None, None, None, None, 0, None)
    mover = adopt(client, lambda network, timeout_ms: _Mover(topic, settings, network, timeout_ms=timeout_ms))
    await mover.open([(topic, 0)])
    try:
        if below:
            await mover.move(below)
    finally:
        await mover.close()
