"""The consuming clients: subscriptions of each type, whose consumers acknowledge, vanish and come back.

A session ends in one of two ways. Killed: its connections close while messages are unacknowledged or their
acknowledgement is on its way. Closed: everything received is acknowledged. Messages of a killed session come again,
unless the answer was that their acknowledgement is durable.

Order: messages that no consumer has received before ascend in what one consumer of an exclusive or failover
subscription gets, and of a key_shared one among the messages of a key, whoever gets them.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from oncelog.client.client import AsyncClient
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.subscribing import SubscriptionTypeName
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import EARLIEST
from oncelog_lab.consumer_program import ranges_of
from oncelog_lab.consumption import Consumption
from oncelog_lab.verdict import LogVerdict
from oncelog_lab.workload.publishers import ClientSetup

_BATCH_MESSAGES = 200
_SESSION_S = (3.0, 12.0)
_RECONNECT_AFTER_S = 0.3
#: How long the application works on a batch before it acknowledges it, at most.
_WORK_S_MAX = 0.3
#: {type: how many consumers share the subscription}
CONSUMERS: dict[SubscriptionTypeName, int] = {"exclusive": 1, "failover": 2, "shared": 2, "key_shared": 2}
#: At the end a new consumer of each subscription gets nothing more for so long.
_QUIET_S = 2.0


@dataclass(slots=True)
class WorkloadSubscription:
    """One subscription, and the account of its consumers."""

    type: SubscriptionTypeName
    topic: str
    account: Consumption = field(default_factory=Consumption)
    #: messages that were received for the first time after a later one
    out_of_order: int = 0
    #: {consumer, or key: the highest index that it got}
    _highest: dict[str | bytes, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"workload-{self.type}"

    def receive(
        self, consumer: str, messages: Sequence[tuple[int, bytes | None]], *, empty_at_s: float
    ) -> list[tuple[int, int]]:
        """A session of a consumer received these, (index, key) each, after its buffer was empty. Returns their
        ranges."""
        for index, key in messages:
            about = {"key_shared": key, "shared": None}.get(self.type, consumer)
            if about is None:
                continue
            highest = self._highest.get(about, -1)
            if index < highest and index not in self.account.received:
                self.out_of_order += 1
            self._highest[about] = max(highest, index)
        ranges = [(first, last) for first, last in ranges_of([index for index, _ in messages])]
        self.account.receive(ranges, empty_at_s=empty_at_s)
        return ranges

    def session_ends(self, consumer: str) -> None:
        """What the next session gets may begin anywhere."""
        self._highest.pop(consumer, None)


def messages_of(batch: ConsumerBatch) -> list[tuple[int, bytes | None]]:
    """(index, key) of each message."""
    found: list[tuple[int, bytes | None]] = []
    for part in batch.batches:
        keys = part.keys or [None] * part.count
        found += zip(range(part.first_index, part.first_index + part.count), keys, strict=True)
    return found


def with_consumers(
    verdict: LogVerdict, subscriptions: Sequence[WorkloadSubscription], ends: Mapping[str, int]
) -> LogVerdict:
    """The verdict with what consumers got. ends: {topic: how many messages it has}."""
    accounts = [(each, each.account) for each in subscriptions]
    never = {each.name: account.never_delivered(ends.get(each.topic, 0)) for each, account in accounts}
    again = {each.name: account.acked_seen_again for each, account in accounts}
    return replace(
        verdict,
        never_delivered=sum(never.values()),
        acked_seen_again=sum(again.values()),
        consumer_order=sum(each.out_of_order for each in subscriptions),
        delivered=sum(account.delivered for _, account in accounts),
        redelivered=sum(account.redelivered for _, account in accounts),
        violations=(
            *verdict.violations,
            *(f"{name}: {count} messages were never delivered" for name, count in never.items() if count),
            *(f"{name}: {count} acknowledged messages came again" for name, count in again.items() if count),
            *(f"{each.name}: wrong order" for each in subscriptions if each.out_of_order),
        ),
    )


async def receive_rest(client: AsyncClient, subscription: WorkloadSubscription) -> None:
    """A new consumer gets what is not acknowledged, until nothing comes. Everybody else has left."""
    async with await client.subscribe(
        subscription.topic, subscription=subscription.name, type=subscription.type, consumer_name="the-rest"
    ) as consumer:
        empty_at_s = time.monotonic()
        while batch := await consumer.receive_batch(_BATCH_MESSAGES, max_wait=_QUIET_S):
            subscription.receive("the-rest", messages_of(batch), empty_at_s=empty_at_s)
            await consumer.ack(batch)
            empty_at_s = time.monotonic()


class WorkloadConsumer:
    """One consumer. `stopping` is set when everything is consumed."""

    def __init__(self, name: str, subscription: WorkloadSubscription, setup: ClientSetup) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self._subscription = subscription
        self._setup = setup
        self._random = random.Random(f"{setup.seed} {name}")

    async def run(self) -> None:
        """Consume in sessions until `stopping`."""
        while not self.stopping.is_set():
            try:
                client = await self._setup.access.connect()
                try:
                    await self._session(client)
                finally:
                    await client.close(flush=False)
            except OncelogError as error:
                self._setup.emit("error", client=self.name, error=f"{error} [{error.code}]")
            if not self.stopping.is_set():
                await asyncio.sleep(_RECONNECT_AFTER_S)

    async def _session(self, client: AsyncClient) -> None:
        """Ends after a random time, killed or closed."""
        subscription = self._subscription
        consumer = await client.subscribe(
            subscription.topic, subscription=subscription.name, type=subscription.type, start=EARLIEST,
            consumer_name=self.name, receive_window=2 * _BATCH_MESSAGES,
        )  # fmt: skip
        handling = asyncio.ensure_future(self._consume(consumer))
        stopping = asyncio.ensure_future(self.stopping.wait())
        killed = self._random.random() < 0.5
        try:
            await asyncio.wait(
                (handling, stopping), timeout=self._random.uniform(*_SESSION_S), return_when=asyncio.FIRST_COMPLETED
            )
            if handling.done():
                handling.result()
            if not killed or self.stopping.is_set():
                handling.cancel()
                await asyncio.gather(handling, return_exceptions=True)
                await consumer.close()
        finally:
            stopping.cancel()
            handling.cancel()
            await asyncio.gather(handling, return_exceptions=True)
            subscription.session_ends(self.name)

    async def _consume(self, consumer: AsyncConsumer) -> None:
        empty_at_s = time.monotonic()
        while True:
            batch = await consumer.receive_batch(_BATCH_MESSAGES, max_wait=0)
            if not len(batch):
                batch = await consumer.receive_batch(_BATCH_MESSAGES)
                empty_at_s = time.monotonic()  # it was empty until these arrived
            ranges = self._subscription.receive(self.name, messages_of(batch), empty_at_s=empty_at_s)
            await asyncio.sleep(self._random.uniform(0, _WORK_S_MAX))
            await consumer.ack(batch)
            self._subscription.account.acknowledge(ranges, at_s=time.monotonic())
