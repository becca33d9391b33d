"""The input as a topic: three partitions, a named producer for each, and many messages published twice on purpose."""

from dataclasses import dataclass

import oncelog
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.spark_proof.flights import PARTITIONS, SOURCE, Found, Row, partition_topic

#: Messages of one call, and the interval of calls that are made twice.
_CALL, _AGAIN = 250, 3


@dataclass(frozen=True, slots=True)
class Filled:
    """Messages that were sent, and those among them that the log refused as duplicates."""

    sent: int
    refused: int


async def fill(cluster: Cluster, partitions: list[list[Row]]) -> Filled:
    """Publish all rows: each third call twice, and all of partition 0 again by a second instance of its producer."""
    await cluster.change("PUT", f"{rest_path(SOURCE)}/partitions", json=PARTITIONS)
    sent = refused = 0
    async with await oncelog.connect(cluster.url) as client:
        for partition, rows in [*enumerate(partitions), (0, partitions[0])]:
            async with await client.create_producer(
                partition_topic(partition), producer_name=f"importer-{partition}"
            ) as own:
                for number, start in enumerate(range(0, len(rows), _CALL)):
                    piece = rows[start : start + _CALL]
                    for _ in range(1 if number % _AGAIN else 2):
                        result = await own.send_many(
                            [row.value.encode() for row in piece],
                            sequence_ids=range(start, start + len(piece)),
                            keys=[row.key for row in piece],
                        )
                        sent += len(piece)
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
