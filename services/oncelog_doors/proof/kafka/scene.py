"""Clients of Kafka in a history, and the scene of it."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from oncelog.client.gateways import create_packed_producer
from oncelog.client.rest_calls import rest
from oncelog.core.names import KAFKA
from oncelog_doors.proof.children import Child, wait_for
from oncelog_doors.proof.kafka.proxy import KafkaProxy
from oncelog_doors.proof.outcome import AGAIN, Outcome, compact
from oncelog_doors.proof.world import ProofClient, SceneOf, Side

#: As of `log_client.kafka_producer`.
_INSTANCE_BYTES = 16


class KafkaClient(ProofClient[KafkaProxy]):
    """A program with a client library of Kafka (`clients`)."""

    async def open(self, *, batch: int = 1, age_s: int = 0, in_flight: int = 0) -> None:
        """Open its producer. batch: messages of one (see `clients`). age_s: of the timestamps of its messages.
        in_flight: batches, more than the library allows; 0: as it does."""
        await self.done("opened", f"open {batch} {age_s} {in_flight}")

    def send(self, *tags: str, partition: int = 0) -> None:
        """Each tag is the value, without AGAIN."""
        self.child.say(f"send {partition} {' '.join(tags)}")

    async def send_all(self, *tags: str, partition: int = 0) -> None:
        """All of them are answered."""
        self.send(*tags, partition=partition)
        await self.answer(*tags)

    async def producer_id(self) -> int:
        """As it was given to the client."""
        await wait_for(lambda: self.proxy.producer_ids, "producer id")
        return self.proxy.producer_ids[-1]

    async def renumber(self, number: int) -> None:
        """Of the next record of partition 0."""
        await self.done("renumbered", f"renumber {number}")

    async def produced(self, count: int) -> None:
        """Return when so many batches have come to the proxy."""
        await wait_for(lambda: self.proxy.seen["Produce"] >= count, "batches on the wire")

    async def decided(self, count: int) -> None:
        """Return when so many were answered by the door, whatever came of the answers."""
        await wait_for(lambda: self.proxy.seen["Produce answer"] >= count, "answers of the door")


class _Read(NamedTuple):
    partition: str
    offset: int
    value: str


class Scene(SceneOf[KafkaProxy, KafkaClient]):
    """One history with one kind of Kafka's clients, on one side."""

    def proxy(self) -> AbstractAsyncContextManager[KafkaProxy]:
        return KafkaProxy.running(self.world.doors[self.side].port)

    def arguments(self, port: int) -> list[str]:
        return [f"127.0.0.1:{port}", self.topic]

    def client_of(self, child: Child, proxy: KafkaProxy) -> KafkaClient:
        return KafkaClient(child, proxy)

    async def opened(self, *, batch: int = 1, age_s: int = 0, in_flight: int = 0) -> KafkaClient:
        """A new process with a producer."""
        client = await self.client()
        await client.open(batch=batch, age_s=age_s, in_flight=in_flight)
        return client

    async def partitioned(self, count: int) -> None:
        """The topic has so many partitions."""
        await rest(self.world.client, "PUT", f"{self.rest_path}/partitions", count)

    async def sent_before(self, producer_id: int, numbers: int) -> None:
        """So many records of this producer count as stored. Kafka's rule knows none of them, and takes any number."""
        if self.side is Side.DOOR:
            await rest(self.world.client, "PUT", f"{self.rest_path}/partitions", 1, may_exist=True)
            log = f"public/{self.side.value}/{self.topic}-partition-0"
            producer = await create_packed_producer(
                self.world.client, log, producer_name=f"{KAFKA}{producer_id}",
                sequence_mode="epoched", instance_id=producer_id.to_bytes(_INSTANCE_BYTES, "big"), epoch=0,
                initial_mark=numbers - 1,
            )  # fmt: skip
            await producer.close(gives_up_name=False)

    def as_elsewhere(self, producer_id: int) -> int:
        """The producer id that another cluster has given when this one gave `producer_id`. Kafka's count from 0, so it
        is the same number. Here it has a check that is computed from the cluster."""
        return producer_id if self.side is Side.RULE else producer_id ^ 1

    async def outcome(self) -> Outcome:
        """What all clients were answered, and what a new one reads."""
        answers = self.answers
        words = iter(await (await self.client()).read())
        read = [
            _Read(partition, int(offset), value) for partition, offset, value in zip(words, words, words, strict=True)
        ]
        return Outcome(
            acknowledged=[tag for tag, (good, _) in answers.items() if good],
            refused=[tag for tag, (good, _) in answers.items() if not good],
            unanswered=[],
            stored=[each.value for each in read],
            note=_wrong_places(answers, read),
        )


def _wrong_places(answers: dict[str, tuple[bool, str]], read: Iterable[_Read]) -> str:
    """Offsets that look right to a program, and have another value. Below 0 is none."""
    places = defaultdict[str, set[int]](set)
    for each in read:
        places[each.value].add(each.offset)
    told = {tag: int(what) for tag, (good, what) in answers.items() if good}
    wrong = [
        tag for tag, offset in told.items() if offset >= 0 and offset not in places.get(tag.rstrip(AGAIN), {offset})
    ]
    return f"WRONG OFFSETS {compact(wrong)}" if wrong else ""
