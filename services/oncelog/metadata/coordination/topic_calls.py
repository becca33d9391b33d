"""Calls to the owner of a topic, wherever it is: a topic without an owner is placed first, and one that moves is
followed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.core.errors import InvalidArgument, NotOwner, OncelogError, ServiceUnavailable, TopicLoading
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.coordination.owners import Owners
from oncelog.metadata.coordination.topic_lookup import TopicLookup
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
        self, topic: TopicName, ask: Callable[[LiveOwner, TopicId], Awaitable[AnswerT]], *, create: bool = False
    ) -> AnswerT:
        """What the owner of a topic or partition answers to `ask`, which is called again while the topic moves.

        create: it is created if it is missing, where the policies allow it. Raises TopicNotFound, InvalidArgument for
        a partitioned topic, ServiceUnavailable, and the errors of `ask`.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + MOVING_MAX_MS / 1000
        while True:
            located = await self._lookup.locate(topic, create=create)
            if located.partitions:
                message = f"{topic} is partitioned: use one of its {located.partitions} partitions, {topic}-partition-N"
                raise InvalidArgument(message, field="topic")
            owner = self._owners.find(located.owner)
            failure: OncelogError = ServiceUnavailable(f"the owner of {topic} has just gone: try again")
            if owner is not None:
                try:
                    return await ask(owner, located.topic_id)
                except (NotOwner, TopicLoading) as error:
                    failure = error
            if loop.time() > ends_at:
                raise failure
            await asyncio.sleep(_PAUSE_S)
