"""Finding topics: from a name to its topic id, creating it if that is allowed, and to the owner that serves it."""

import asyncio
from typing import NamedTuple

from oncelog.core.access import Caller, Right
from oncelog.core.errors import InvalidName, ServiceUnavailable, TopicNotFound
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.coordination.owners import Owners, address_of, advertised_address_of
from oncelog.metadata.coordination.placements import Placements
from oncelog.stores.policy_store import PolicyStore
from oncelog.stores.topic_store import NameRecord, TopicStore

#: How long a look-up waits for an owner; its caller's own deadline may end it before.
OWNER_WAIT_MS = 10_000
#: A suspected owner is asked about again after so long.
SUSPECTED_RETRY_MS = 20


class Located(NamedTuple):
    """Where a topic is served: address for clients, internal_address for services.

    partitions above 0: it is a name for its parts, and the rest is empty.
    """

    topic_id: TopicId
    partitions: int
    address: str = ""
    owner: Incarnation = Incarnation("")
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    internal_address: str = ""


class TopicLookup:
    """Used by gRPC and REST alike."""

    def __init__(self, topics: TopicStore, policies: PolicyStore, owners: Owners, placements: Placements) -> None:
        self._topics = topics
        self._policies = policies
        self._owners = owners
        self._placements = placements

    async def find(self, name: TopicName) -> NameRecord:
        """What the name points to. Raises TopicNotFound."""
        found = await self._topics.find(name)
        if found is None or found.value.deleted:
            raise TopicNotFound(f"there is no topic {name}: create it", topic=str(name))
        return found.value

    async def create(self, name: TopicName, *, partitions: int = 0) -> bool:
        """True: created; False: it was there. partitions: above 0: a name for so many parts, made when they are used.

        Raises NamespaceNotFound, and InvalidName for the part of a topic.
        """
        if name.partition is not None:
            raise InvalidName(
                f"{name} would be part {name.partition} of {name.local}: parts are created with their topic",
                field="topic",
            )
        return (await self._topics.create(name, partitions=partitions)).created

    async def locate(self, name: TopicName, *, create: bool, owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)) -> Located:
        """Where the topic is served, once an owner is there.

        Raises TopicNotFound, NamespaceNotFound, and ServiceUnavailable when there was no owner in all that time.
        """
        record = await self._found(name, create=create)
        if record.partitions:
            return Located(record.topic_id, record.partitions)
        try:
            async with asyncio.timeout(OWNER_WAIT_MS / 1000):
                return await self._located(record.topic_id, owner_epoch_seen)
        except TimeoutError as error:
            raise ServiceUnavailable(f"no topic owner could take {name}: start one", topic=str(name)) from error

    async def locate_for(
        self, caller: Caller, name: TopicName, *, create: bool, owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    ) -> Located:
        """As `locate`, for who may publish or read there; to create a topic is for who may publish.

        Raises PermissionDenied, too.
        """
        namespace = name.namespace_name
        await self._policies.require(caller, namespace, Right.PRODUCE, Right.CONSUME)
        try:
            return await self.locate(name, create=create and caller.superuser, owner_epoch_seen=owner_epoch_seen)
        except TopicNotFound:
            if not create or caller.superuser:
                raise
        await self._policies.require(caller, namespace, Right.PRODUCE)
        return await self.locate(name, create=True, owner_epoch_seen=owner_epoch_seen)

    async def _found(self, name: TopicName, *, create: bool) -> NameRecord:
        found = await self._topics.find(name)
        if found is not None and not found.value.deleted:
            return found.value
        if not create:
            raise TopicNotFound(f"there is no topic {name}: create it", topic=str(name))
        policies = await self._policies.effective(name.namespace_name)
        # A part was asked for by whoever created its topic, and without that it is not made.
        if name.partition is None and not policies.auto_create_topics.value:
            raise TopicNotFound(
                f"there is no topic {name}, and its {policies.auto_create_topics.source.value} forbids that topics "
                "are created by being used: create it",
                topic=str(name),
            )
        return (await self._topics.create(name)).name.value

    async def _located(self, topic_id: TopicId, owner_epoch_seen: OwnerEpoch) -> Located:
        while True:
            change = self._owners.change
            placed = await self._placements.place(topic_id, owner_epoch_seen=owner_epoch_seen)
            if placed is None:
                await change.wait()
                continue
            owner = self._owners.find(placed.owner)
            if owner is not None and not self._owners.is_lost(placed.owner):
                return Located(
                    topic_id,
                    0,
                    advertised_address_of(owner),
                    placed.owner,
                    placed.owner_epoch,
                    address_of(owner),
                )
            # Gone again, or held by the back-off after a takeover: it moves soon.
            await asyncio.sleep(SUSPECTED_RETRY_MS / 1000)
