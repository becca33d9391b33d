"""The consuming clients: subscriptions of each type, whose consumers acknowledge, vanish and come back.

A session ends in one of two ways. Killed: its connections close while messages are unacknowledged or their
acknowledgement is on its way. Closed: everything received is acknowledged. Messages of a killed session come again,
unless their acknowledgement was told to be durable.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field

from oncelog.client.client import AsyncClient
from oncelog.client.consumer import AsyncConsumer
from oncelog.client.subscribing import SubscriptionTypeName
from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import EARLIEST
from oncelog.lab.consumer_program import ranges_of
from oncelog.lab.consumption import Consumption
from oncelog.lab.workload.publishers import ClientSetup

_BATCH_MESSAGES = 200
_SESSION_S = (3.0, 12.0)
_RECONNECT_AFTER_S = 0.3
#: How long the application works on a batch before it acknowledges it, at most.
_WORK_S_MAX = 0.3
#: {type: how many consumers share the subscription}
CONSUMERS: dict[SubscriptionTypeName, int] = {"exclusive": 1, "failover": 2, "shared": 2, "key_shared": 2}
_ORDERED = ("exclusive", "failover")


@dataclass(slots=True)
class WorkloadSubscription:
    """One subscription, and the account of its consumers."""

    type: SubscriptionTypeName
    topic: str
    account: Consumption = field(default_factory=Consumption)
    #: messages that a consumer of an exclusive or failover subscription got for the first time after a later one
    out_of_order: int = 0

    @property
    def name(self) -> str:
        return f"workload-{self.type}"


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

    async def _consume(self, consumer: AsyncConsumer) -> None:
        empty_at_s = time.monotonic()
        highest = -1
        while True:
            batch = await consumer.receive_batch(_BATCH_MESSAGES, max_wait=0)
            if not len(batch):
                batch = await consumer.receive_batch(_BATCH_MESSAGES)
                empty_at_s = time.monotonic()  # it was empty until these arrived
            indexes = [part.first_index + number for part in batch.batches for number in range(part.count)]
            highest = self._check_order(indexes, highest)
            ranges = [(first, last) for first, last in ranges_of(indexes)]
            self._subscription.account.receive(ranges, empty_at_s=empty_at_s)
            await asyncio.sleep(self._random.uniform(0, _WORK_S_MAX))
            await consumer.ack(batch)
            self._subscription.account.acknowledge(ranges, at_s=time.monotonic())

    def _check_order(self, indexes: list[int], highest: int) -> int:
        """Messages that nobody has received before ascend in what one consumer gets."""
        if self._subscription.type in _ORDERED:
            for index in indexes:
                if index < highest and index not in self._subscription.account.received:
                    self._subscription.out_of_order += 1
                highest = max(highest, index)
        return highest
