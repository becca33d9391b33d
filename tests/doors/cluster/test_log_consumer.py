"""The consumer of a door's client, without a cluster: rights that end while it is open, and its acknowledgements."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import ConsumedEntry, EntryConsumer, EntryReader, WholeEntry
from oncelog.client.values.messages import StoredBatch
from oncelog.client.values.results import AckResult
from oncelog.core.access import Caller
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import ConsumerClosed, OncelogError, PermissionDenied, StaleSeekEpoch
from oncelog.core.ids import Generation, SeekEpoch
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.log_client.client_policies import PoliciesOfTopic
from oncelog_doors.log_client.log_consumer import LogConsumer
from oncelog_doors.log_client.namespace_grants import Grants, NamespaceGrants
from oncelog_doors.log_client.rights import Rights
from tests.cluster.until import until
from tests.doors.core.pulsar.stored_batches import columns, stored

DEADLINE_S = 30.0
EPOCH = SeekEpoch(3)
RANGE = IndexRange(100, 100)


class Entries:
    """In the place of `EntryConsumer`. It has one entry, again and again."""

    name = "mine"

    def __init__(self) -> None:
        raw = stored(columns([b"a"]))
        whole = WholeEntry(StoredBatch(raw.entry, raw.batch, memoryview(raw.body)), "importer")
        self.entry = ConsumedEntry(whole, (RANGE,), 2, EPOCH, Generation(1))
        self.failure: OncelogError | None = None
        self.closed = asyncio.Event()
        self.acks: list[asyncio.Future[AckResult]] = []
        self.nacks: list[int | None] = []

    def take(self) -> ConsumedEntry:
        return self.entry

    async def arrival(self) -> None:
        await self.closed.wait()
        raise ConsumerClosed("the consumer was closed")

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch) -> "asyncio.Future[AckResult]":
        if self.failure is not None:
            raise self.failure
        assert (ranges, seek_epoch) == ([RANGE], EPOCH)
        self.acks.append(asyncio.get_running_loop().create_future())
        return self.acks[-1]

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int | None) -> None:
        assert self.failure is None
        self.nacks.append(delay_ms)

    async def close(self, *, client_lost: bool = False) -> None:
        self.failure = ConsumerClosed("the consumer was closed")
        self.closed.set()


class World:
    def __init__(self, caller: Caller) -> None:
        self.grants: Grants = {"billing": ["consume"]}
        self.tasks = BackgroundTasks()
        self.entries = Entries()
        rights = Rights(caller, TopicName("public", "default", "orders"), NamespaceGrants(self._ask))
        consumer, ends = cast("EntryConsumer", self.entries), cast("EntryReader", None)
        policies = cast("PoliciesOfTopic", None)
        self.consumer = LogConsumer(
            cast("AsyncClient", None), consumer, ends, rights, policies, self.tasks, every_s=0.001
        )
        self.settled: list[tuple[OncelogError | None, bool]] = []

    async def _ask(self, _namespace: str) -> Grants:
        return self.grants

    def ack(self) -> None:
        self.consumer.ack([RANGE], EPOCH, lambda error, durable: self.settled.append((error, durable)))


@pytest.mark.asyncio
async def test_role_that_has_lost_its_right_gets_nothing_more() -> None:
    """The consumer is closed, so that others get what its client holds."""
    world = World(Caller("billing"))
    waiting = asyncio.ensure_future(world.consumer.arrival())
    taken = world.consumer.take()
    assert taken is not None
    assert (taken.ranges, taken.delivery_count, taken.seek_epoch) == ((RANGE,), 2, EPOCH)
    world.grants = {"billing": ["produce"]}
    with pytest.raises(PermissionDenied, match="billing"):
        await asyncio.wait_for(waiting, DEADLINE_S)
    with pytest.raises(PermissionDenied):
        world.consumer.take()
    assert isinstance(world.consumer.failure, PermissionDenied)
    assert world.entries.closed.is_set()
    await world.tasks.close()


@pytest.mark.asyncio
async def test_closed_consumer_asks_for_no_rights_any_more() -> None:
    """Its watch ends with it."""
    world = World(Caller("billing"))
    await world.consumer.close(client_lost=False)
    await until(lambda: not world.tasks._tasks, DEADLINE_S)


@pytest.mark.asyncio
async def test_acknowledgement_says_how_it_has_ended() -> None:
    """Durable, in memory alone, with an error, and with the consumer."""
    world = World(Caller("root", superuser=True))
    stale = StaleSeekEpoch("sought")
    for number, outcome in enumerate((AckResult(True, True), AckResult(False, True), stale, None)):
        world.ack()
        future = world.entries.acks[number]
        if outcome is None:
            future.cancel()
        elif isinstance(outcome, OncelogError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    await until(lambda: len(world.settled) == 4, DEADLINE_S)
    assert world.settled[:3] == [(None, True), (None, False), (stale, False)]
    assert isinstance(world.settled[3][0], ConsumerClosed)


@pytest.mark.asyncio
async def test_consumer_that_is_over_takes_no_requests() -> None:
    """An acknowledgement fails; what is to come again does that anyway."""
    world = World(Caller("root", superuser=True))
    await world.entries.close()
    world.ack()
    world.consumer.nack([RANGE], delay_ms=0)
    world.consumer.redeliver()
    await until(lambda: world.settled, DEADLINE_S)
    assert isinstance(world.settled[0][0], ConsumerClosed)
    assert world.entries.nacks == []
