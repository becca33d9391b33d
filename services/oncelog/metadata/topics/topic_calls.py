"""Calls to the owner of a topic, wherever it is. A topic that moves is followed. A topic without an owner is placed
first, unless the caller only looks: a look must not cause a takeover."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import Conflict, NotOwner, OncelogError, ServiceUnavailable, TopicLoading
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owners import Owners
from oncelog.metadata.topics.topic_lookup import TopicLookup, require_unpartitioned
from oncelog.metadata_store.records.registry import LiveOwner

AnswerT = TypeVar("AnswerT")

#: How long a call is repeated while the topic moves: until then nothing was done.
MOVING_MAX_MS = 10_000
_PAUSE_S = 0.1


class TopicCalls:
    """Used by the REST interface, which checks rights."""

    def __init__(self, lookup: TopicLookup, owners: Owners) -> None:
        self._lookup = lookup
        self._owners = owners

    async def of_owner(
        self,
        topic: TopicName,
        ask: Callable[[LiveOwner, TopicId], Awaitable[AnswerT]],
        *,
        create: bool = False,
        placed: bool = True,
    ) -> AnswerT:
        """What the owner of a topic or partition answers to `ask`, which is called again while the topic moves.

        create: it is created if it is missing, where the policies allow it. placed: it is placed if it has no owner;
        otherwise this raises Conflict, and changes nothing. Raises TopicNotFound, InvalidArgument for a partitioned
        topic, ServiceUnavailable, and the errors of `ask`.
        """
        assert placed or not create, "a topic that is created is placed"
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + MOVING_MAX_MS / 1000
        while True:
            topic_id, incarnation = await (self._placed(topic, create) if placed else self._found(topic))
            owner = self._owners.find(incarnation)
            failure: OncelogError = ServiceUnavailable(f"the owner of {topic} has just gone: try again")
            if owner is not None:
                try:
                    return await ask(owner, topic_id)
                except (NotOwner, TopicLoading) as error:
                    failure = error
            if loop.time() > ends_at:
                raise failure
            await asyncio.sleep(_PAUSE_S)

    async def _placed(self, topic: TopicName, create: bool) -> tuple[TopicId, Incarnation]:
        located = await self._lookup.locate(topic, create=create)
        require_unpartitioned(topic, located.partitions)
        return located.topic_id, located.owner

    async def _found(self, topic: TopicName) -> tuple[TopicId, Incarnation]:
        name, record = await self._lookup.record(topic)
        require_unpartitioned(topic, name.partitions)
        assert record is not None, "a topic that is not partitioned has a record"
        # The topics of an owner that was lost are placed on another one at once. If there is none, no owner is left.
        if record.owner is None or (self._owners.is_lost(record.owner) and not self._owners.usable):
            message = f"no owner serves topic {topic} now: the next producer, consumer or reader brings it to one"
            raise Conflict(message, topic=str(topic))
        return name.topic_id, record.owner
