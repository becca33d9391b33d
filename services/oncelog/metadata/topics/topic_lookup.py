"""Topic look-up: from a topic name to its id and its owner; creates and places the topic if necessary and allowed.

Three answers end a client: a topic or namespace does not exist; the caller has no right; the name belongs to another
topic than the client's, which shows in an epoch below the one that the client has seen. They are given only after a
proof that the era of this replica had not ended when it read them (`era_proof`). Without a proof, clients ask again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from oncelog.core.access import Caller, Right
from oncelog.core.errors import (
    InvalidArgument,
    InvalidName,
    NotFound,
    PermissionDenied,
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.names import TopicName, check_partitions
from oncelog.metadata.owners.owners import Owners, address_of, advertised_address_of
from oncelog.metadata.placement.placements import Placements
from oncelog.metadata.topics.era_proof import EraProof
from oncelog.metadata.topics.lookup_admission import LookupAdmission
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.topic_store import NameRecord, TopicCreation, TopicStore
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.runtime.backoff import Backoff, doubling_pause_ms

#: How long a look-up waits for an owner. The deadline of the call may be shorter.
OWNER_WAIT_MS = 10_000
#: The longest pause before a topic whose owner is suspected is placed again. Thousands of topics may wait.
SUSPECTED_RETRY_MS_MAX = 200


class Located(NamedTuple):
    """Where a topic is served. address: for clients; internal_address: for services.

    partitions: above 0 for a partitioned topic, which itself has no owner: then the fields of an owner are empty.
    former_partitions: as in NameRecord.
    """

    topic_id: TopicId
    partitions: int
    address: str = ""
    owner: Incarnation = Incarnation("")
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    internal_address: str = ""
    former_partitions: tuple[int, ...] = ()


def require_unpartitioned(topic: TopicName, partitions: int) -> None:
    """Raises InvalidArgument."""
    if partitions:
        message = f"{topic} is partitioned: use one of its {partitions} partitions, {topic}-partition-N"
        raise InvalidArgument(message, field="topic")


class TopicLookup:
    """Used by both gRPC and REST. Each public method raises TooManyRequests while too many calls are in progress, and
    ServiceUnavailable in place of NotFound or PermissionDenied if storage nodes do not prove its era."""

    def __init__(
        self,
        topics: TopicStore,
        policies: PolicyStore,
        owners: Owners,
        placements: Placements,
        era: EraProof,
        *,
        admission: LookupAdmission | None = None,
        by_use: TopicStore | None = None,
    ) -> None:
        """by_use: creates topics on use. Nobody waits for the note of such a name: the topic's ledgers have it."""
        self._topics = topics
        self._by_use = by_use or topics
        self._policies = policies
        self._owners = owners
        self._placements = placements
        self._era = era
        self.admission = admission or LookupAdmission()
        self._names = SharedReads(self._read_name)

    async def find(self, name: TopicName) -> NameRecord:
        """The record of the name. Raises TopicNotFound."""
        async with self._caller():
            found = await self._names.get(name)
            if found is None or found.value.deleted:
                raise TopicNotFound(f"topic {name} does not exist: create it", topic=str(name))
            return found.value

    async def record(self, name: TopicName) -> tuple[NameRecord, TopicRecord | None]:
        """The record of the name and, unless it is partitioned, that of the topic. Nothing is placed. The topic's
        owner may be lost. Raises TopicNotFound."""
        found = await self.find(name)
        if found.partitions:
            return found, None
        async with self._caller():
            stored = await self._topics.read(found.topic_id)
            if stored is None:
                raise TopicNotFound(f"topic {name} was deleted", topic=str(name))
            return found, stored.value

    async def create(self, name: TopicName, *, partitions: int = 0) -> bool:
        """Create a topic; returns False if it exists. partitions: above 0 for a partitioned topic, whose partitions are
        created on first use.

        Raises NamespaceNotFound, and InvalidName for a single partition, or for a name that is too long for the names
        of its partitions.
        """
        if name.partition is not None:
            raise InvalidName(
                f"{name} is the name of a partition of {name.local}: create the partitioned topic instead",
                field="topic",
            )
        if partitions:
            check_partitions(name, partitions)
        async with self._caller():
            return (await self._create(self._topics, name, partitions=partitions)).created

    async def locate(self, name: TopicName, *, create: bool, owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)) -> Located:
        """Where the topic is served; waits up to OWNER_WAIT_MS for an owner that can take it.

        Raises TopicNotFound, NamespaceNotFound, and ServiceUnavailable if no owner took it in that time.
        """
        async with self._caller():
            return await self._locate(name, create, owner_epoch_seen)

    async def _locate(self, name: TopicName, create: bool, owner_epoch_seen: OwnerEpoch) -> Located:
        found = await self._found(name, create=create)
        record = found.name.value
        if record.partitions:
            return Located(record.topic_id, record.partitions, former_partitions=record.former_partitions)
        try:
            async with asyncio.timeout(OWNER_WAIT_MS / 1000):
                located = await self._located(record.topic_id, owner_epoch_seen, found.record)
        except TimeoutError as error:
            raise ServiceUnavailable(
                f"no topic owner took topic {name} within {OWNER_WAIT_MS / 1000:g} s: start a topic owner",
                topic=str(name),
            ) from error
        if located.owner_epoch < owner_epoch_seen:
            await self._era.require()
        return located

    async def locate_for(
        self, caller: Caller, name: TopicName, *, create: bool, owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    ) -> Located:
        """As `locate`, for a caller with the right to produce or consume. Creating the topic requires `produce`.

        Also raises PermissionDenied.
        """
        async with self._caller():
            await self._require(caller, name, Right.PRODUCE, Right.CONSUME)
            try:
                return await self._locate(name, create and caller.superuser, owner_epoch_seen)
            except TopicNotFound:
                if not create or caller.superuser:
                    raise
            await self._require(caller, name, Right.PRODUCE)
            return await self._locate(name, True, owner_epoch_seen)

    @asynccontextmanager
    async def _caller(self) -> AsyncIterator[None]:
        """Raises ServiceUnavailable in place of a final answer that may be of a former era."""
        async with self.admission.caller():
            try:
                yield
            except (NotFound, PermissionDenied):
                await self._era.require()
                raise

    async def _require(self, caller: Caller, name: TopicName, *rights: Right) -> None:
        async with self.admission.step():
            await self._policies.require(caller, name.namespace_name, *rights)

    async def _read_name(self, name: TopicName) -> Versioned[NameRecord] | None:
        async with self.admission.step():
            return await self._topics.find(name)

    async def _create(self, topics: TopicStore, name: TopicName, *, partitions: int = 0) -> TopicCreation:
        async with self.admission.step():
            return await topics.create(name, partitions=partitions)

    async def _found(self, name: TopicName, *, create: bool) -> TopicCreation:
        found = await self._names.get(name)
        if found is not None and not found.value.deleted:
            return TopicCreation(found, created=False)
        if not create:
            raise TopicNotFound(f"topic {name} does not exist: create it", topic=str(name))
        async with self.admission.step():
            policies = await self._policies.effective(name.namespace_name)
        # A partition needs no permission to be created on use: the creator of its partitioned topic requested it.
        if name.partition is None and not policies.auto_create_topics.value:
            raise TopicNotFound(
                f"topic {name} does not exist, and its {policies.auto_create_topics.source.value} disables "
                "automatic topic creation: create the topic",
                topic=str(name),
            )
        return await self._create(self._by_use, name)

    async def _located(
        self, topic_id: TopicId, owner_epoch_seen: OwnerEpoch, record: Versioned[TopicRecord] | None
    ) -> Located:
        """record: of a topic that was just created."""
        backoff = Backoff(lambda failures: min(doubling_pause_ms(failures), SUSPECTED_RETRY_MS_MAX))
        while True:
            change = self._owners.change
            async with self.admission.step():
                placed = await self._placements.place(topic_id, owner_epoch_seen=owner_epoch_seen, record=record)
            record = None
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
            # The owner was lost again, or the placement is in back-off after a takeover. Retry shortly.
            await backoff.pause()
