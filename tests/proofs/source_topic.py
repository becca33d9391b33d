"""The input as a topic: a named producer for each partition, and many messages published twice on purpose."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import oncelog
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.proofs.flights import PARTITIONS, Found, Row, partition_of, producer_of

#: Messages of one call, and the interval of calls that are made twice.
_CALL, _AGAIN = 250, 3


@dataclass(frozen=True, slots=True)
class Filled:
    """Messages that were sent, and those among them that the log refused as duplicates."""

    sent: int = 0
    refused: int = 0

    def __add__(self, other: "Filled") -> "Filled":
        return Filled(self.sent + other.sent, self.refused + other.refused)

    def __str__(self) -> str:
        return f"{self.sent} messages sent to the source, {self.refused} of them refused as duplicates"


async def create(cluster: Cluster, source: str) -> None:
    await cluster.change("PUT", f"{rest_path(source)}/partitions", json=PARTITIONS)


async def publish(cluster: Cluster, source: str, pieces: Iterable[tuple[int, Sequence[Row], range]]) -> Filled:
    """Each third call twice, so that the log must refuse duplicates.

    pieces: (partition, all its rows, the numbers of those that are published now); each by an instance of its own of
    the partition's producer.
    """
    sent = refused = 0
    async with await oncelog.connect(cluster.url) as client:
        for partition, rows, numbers in pieces:
            topic = partition_of(source, partition)
            async with await client.create_producer(topic, producer_name=producer_of(partition)) as own:
                for call, start in enumerate(range(numbers.start, numbers.stop, _CALL)):
                    ids = range(start, min(start + _CALL, numbers.stop))
                    for _ in range(1 if call % _AGAIN else 2):
                        result = await own.send_many(
                            [rows[n].value.encode() for n in ids], sequence_ids=ids, keys=[rows[n].key for n in ids]
                        )
                        sent += len(ids)
                        refused += result.duplicates
    return Filled(sent, refused)


async def stored(url: str, topic: str) -> list[Found]:
    """Everything that a reader gets, in order."""
    found: list[Found] = []
    async with await oncelog.connect(url) as client, await client.create_reader(topic) as reader:
        while await reader.has_message_available():
            found += [
                Found(
                    (m.producer_name or "").partition("#")[0], m.sequence_id, (m.key or b"").decode(), m.value.decode()
                )
                for m in await reader.read_batch()
            ]
    return found
