"""A consumer of the SDK, in the form that a door needs (`pulsar.ports.ConsumerPort`)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.gateways import (
    ConsumedEntry,
    EntryConsumer,
    EntryConsumerCallbacks,
    EntryReader,
    WholeEntry,
    chunks_of,
    open_entry_consumer,
)
from oncelog.client.values.messages import StoredBatch
from oncelog.client.values.results import AckResult
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import ConsumerClosed, OncelogError
from oncelog.core.ids import SeekEpoch
from oncelog.core.names import parse_topic
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.chunked_deliveries import is_in_chunks
from oncelog_doors.core.pulsar.message_ids import DeliveredId, Start
from oncelog_doors.core.pulsar.subscribing import Subscription
from oncelog_doors.core.shared.window_shares import WindowShares
from oncelog_doors.log_client.client_policies import PoliciesOfTopic, policies_of
from oncelog_doors.log_client.log_chunks import LogChunks
from oncelog_doors.log_client.log_reader import last_id_at, place_of, raw_of
from oncelog_doors.log_client.partitions import partitions_of
from oncelog_doors.log_client.rights import RIGHTS_EVERY_S, Rights, RightsWatch
from oncelog_doors.pulsar.ports import ConsumerCallbacks, Settled, TakenEntry

#: Of a seek. Clients wait 30 s for it.
SEEK_S = 25.0


class LogConsumer:
    """Of one client of a door."""

    def __init__(
        self,
        client: AsyncClient,
        consumer: EntryConsumer,
        ends: EntryReader,
        rights: Rights,
        policies: PoliciesOfTopic,
        tasks: BackgroundTasks,
        *,
        every_s: float = RIGHTS_EVERY_S,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """ends: looks at the end of the topic; it is not open. every_s: how often the rights are asked for. closed:
        called once, when it holds no entries any more."""
        self._closed: Callable[[], None] | None = closed
        self._client, self._consumer, self._ends, self._policies, self._tasks = client, consumer, ends, policies, tasks
        self._watch = RightsWatch(rights, tasks, self._lost, every_s=every_s)

    def _lost(self) -> None:
        """The client has lost its right."""
        self._tasks.start(self._consumer.close(), what=f"the end of {self._consumer.name}")

    @property
    def created(self) -> bool:
        return self._consumer.created

    @property
    def active(self) -> bool:
        return self._consumer.active

    @property
    def seek_epoch(self) -> SeekEpoch:
        return self._consumer.seek_epoch

    @property
    def failure(self) -> OncelogError | None:
        return self._watch.denied or self._consumer.failure

    def permits(self, total: int) -> None:
        self._consumer.permits(total)

    def take(self) -> TakenEntry | None:
        if self._watch.denied is not None:
            raise self._watch.denied
        taken: ConsumedEntry | None = self._consumer.take()
        if taken is None:
            return None
        return TakenEntry(raw_of(taken.whole), taken.ranges, taken.delivery_count, taken.seek_epoch)

    def chunks_of(self, taken: TakenEntry) -> LogChunks | None:
        raw = taken.raw
        if not is_in_chunks(raw):
            return None
        whole = WholeEntry(StoredBatch(raw.entry, raw.batch, memoryview(raw.body)), raw.producer_name)
        return LogChunks(raw, chunks_of(self._client, self._consumer.topic, whole))

    async def arrival(self) -> None:
        try:
            await self._consumer.arrival()
        except OncelogError as error:
            raise self._watch.denied or error from None

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch, then: Settled) -> None:
        try:
            future = self._consumer.ack(ranges, seek_epoch)
        except OncelogError as error:
            asyncio.get_running_loop().call_soon(then, error, False)
        else:
            future.add_done_callback(partial(_settle, then))

    async def acks_undecodable(self) -> bool:
        return (await self._policies.get()).ack_undecodable

    async def is_paused(self) -> bool:
        return await self._consumer.is_paused()

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int) -> None:
        if self._consumer.failure is None:
            self._consumer.nack(ranges, delay_ms=delay_ms)

    def redeliver(self) -> None:
        if self._consumer.failure is None:
            self._consumer.redeliver()

    async def seek(self, start: Start) -> None:
        await self._consumer.seek(place_of(start), timeout=SEEK_S)

    async def unsubscribe(self) -> None:
        await self._consumer.unsubscribe()

    async def last_id(self) -> DeliveredId | None:
        return await last_id_at(self._ends)

    def holder_lives(self) -> None:
        self._consumer.client_lives()

    async def close(self, *, client_lost: bool) -> None:
        self._watch.close()
        try:
            await self._consumer.close(client_lost=client_lost)
        finally:
            closed, self._closed = self._closed, None
            if closed is not None:
                closed()


def _settle(then: Settled, future: "asyncio.Future[AckResult]") -> None:
    if future.cancelled():
        then(ConsumerClosed("the consumer was closed"), False)
        return
    error = future.exception()
    if error is None:
        then(None, future.result().durable)
    elif isinstance(error, OncelogError):
        then(error, False)
    else:
        raise error


async def open_log_consumer(
    client: AsyncClient,
    rights: Rights,
    name: str,
    consumer_name: str,
    subscription: Subscription,
    callbacks: ConsumerCallbacks,
    windows: WindowShares,
    *,
    may_create: bool,
    form: Callable[..., LogConsumer] = LogConsumer,
) -> LogConsumer:
    """As `ClusterPort.open_consumer`. client: with a token of a superuser, if the cluster wants tokens. windows: of all
    readers and consumers of the door. form: makes the consumer; the proof against Pulsar's rule has another one."""
    network = network_of(client)
    creates = await rights.check(may_create=may_create)
    if not creates:  # the subscription is made all the same
        await partitions_of(network.lookup, rights.topic)
    window_bytes = windows.opened()
    closed = partial(windows.closed, window_bytes)
    try:
        consumer = await open_entry_consumer(
            client,
            str(rights.topic),
            name,
            subscription.type,
            consumer_name,
            start=place_of(subscription.start),
            priority=subscription.priority,
            properties=subscription.properties,
            callbacks=EntryConsumerCallbacks(
                active=callbacks.active, recalled=callbacks.recalled, sought=callbacks.sought, wanted=callbacks.wanted
            ),
            window_bytes=window_bytes,
        )
    except BaseException:
        closed()
        raise
    ends = EntryReader(parse_topic(str(rights.topic)), network, timeout_ms=None)
    policies = PoliciesOfTopic(partial(policies_of, client, rights.topic))
    return form(client, consumer, ends, rights, policies, network.background, closed=closed)
