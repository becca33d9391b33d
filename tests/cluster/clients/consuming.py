"""Consumers under load, and the check of their subscriptions: nothing is missing, nothing acknowledged comes again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import oncelog
from tests.cluster.until import until

DEADLINE_S = 40.0
#: (partition, index)
Place = tuple[int, int]


@dataclass(eq=False)
class Consumption:
    """The consumers of one subscription in this process, which acknowledge everything, each in its own way."""

    name: str
    consumers: list[oncelog.AsyncConsumer]
    cumulative: bool = False
    received: dict[Place, int] = field(default_factory=dict)
    #: durable before the present moment
    acked: set[Place] = field(default_factory=set)
    acked_again: list[Place] = field(default_factory=list)

    async def run(self, consumer: oncelog.AsyncConsumer) -> None:
        while True:
            batch = await consumer.receive_batch(50)
            for message in batch:
                place = (message.partition, message.index)
                self.received[place] = self.received.get(place, 0) + 1
                if place in self.acked:
                    self.acked_again.append(place)
            places = [(message.partition, message.index) for message in batch]
            result = await (consumer.ack_cumulative(batch) if self.cumulative else consumer.ack(batch))
            assert result.durable
            self.acked.update(places)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, clients: list[oncelog.AsyncClient], topic: str, kind: str, *, cumulative: bool = False
    ) -> AsyncIterator["Consumption"]:
        """Inside the block, one consumer for each client."""
        consumers = [
            await client.subscribe(topic, subscription=kind, type=kind, start=oncelog.EARLIEST)  # type: ignore[arg-type]
            for client in clients
        ]
        consumption = cls(kind, consumers, cumulative)
        tasks = [asyncio.ensure_future(consumption.run(consumer)) for consumer in consumers]
        try:
            yield consumption
        except BaseException:
            # The first error wins: what is not answered then is no news.
            await _end(tasks)
            await asyncio.gather(*(consumer.close() for consumer in consumers), return_exceptions=True)
            raise
        ended = await _end(tasks)
        for consumer in consumers:
            await consumer.close()
        failed = [each for each in ended if isinstance(each, Exception)]
        assert not failed, failed

    def under_way(self) -> bool:
        """Whether messages are received and their acknowledgement is not answered."""
        return len(self.received) > len(self.acked)

    async def has_acked(self, count: int) -> None:
        await until(lambda: len(self.acked) >= count, DEADLINE_S, waiting_for=f"{count} acknowledged by {self.name}")

    async def check_all(self, stored: Sequence[oncelog.Message]) -> None:
        """Wait until so many are acknowledged, and check that they are these."""
        await self.has_acked(len(stored))
        self.check({(message.partition, message.index) for message in stored})

    def check(self, stored: set[Place]) -> None:
        assert not self.acked_again, f"{self.name}: acknowledged and seen again: {self.acked_again[:10]}"
        assert set(self.received) == self.acked == stored


async def _end(tasks: list["asyncio.Task[None]"]) -> list[BaseException | None]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
