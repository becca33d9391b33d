"""The data to read: the same rows in partitioned topics, in closed ledgers, and in files of Spark's own formats."""

import base64
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from oncelog.client.client import BATCH_BYTES_MAX, AsyncClient
from oncelog_lab.bench.consume import fill
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.formats import file_source, topic_source
from oncelog_lab.spark_bench.sessions import BenchSession
from oncelog_lab.values import make_values
from oncelog_spark.cluster import ClusterConnection
from oncelog_spark.options import ConnectionOptions
from oncelog_spark.source.topic_catalog import TopicCatalog

_NAMESPACE = "public/default"
_DISTINCT_VALUES = 1000
_ENTRY_ROWS = 10_000


class RowFiles(NamedTuple):
    """Directories with the same rows. text: only the values, one per line."""

    parquet: str
    text: str


def new_topic() -> str:
    return f"{_NAMESPACE}/bench-spark-{uuid.uuid4().hex[:12]}"


def printable_values(message_bytes: int) -> list[bytes]:
    """Like the values of the other benchmarks, but each is a line of text."""
    noise = max(1, message_bytes // 2)
    distinct = make_values(noise * 2, min(_DISTINCT_VALUES, _ENTRY_ROWS))
    return [base64.b64encode(each)[:noise].ljust(message_bytes, b"x")[:message_bytes] for each in distinct]


async def filled_topic(
    cluster: LabCluster,
    client: AsyncClient,
    *,
    rows: int,
    partitions: int,
    values: Sequence[bytes],
    entry_bytes: int = BATCH_BYTES_MAX,
) -> str:
    """A topic with the rows evenly in its partitions, all in closed ledgers. Raises LabFailed.

    entry_bytes: size of the values in an entry; by default as the SDK fills a batch.
    """
    topic = new_topic()
    names = [topic] if partitions == 1 else [f"{topic}-partition-{number}" for number in range(partitions)]
    async with cluster.rest() as rest:
        if partitions > 1:
            await rest.put_in_place("PUT", f"/admin/v2/persistent/{topic}/partitions", partitions)
        listed = [values[index % len(values)] for index in range(_ENTRY_ROWS)]
        for name in names:
            async with await client.create_producer(
                name, producer_name="bench", batch_bytes_max=entry_bytes
            ) as producer:
                await fill(producer, listed, rows // partitions)
            await rest.put_in_place("PUT", f"/admin/v2/persistent/{name}/unload")
    async with ClusterConnection(ConnectionOptions(cluster.url)) as connection:
        # The first request makes an owner serve the topic again, with a new ledger.
        await TopicCatalog(connection, (topic,)).states()
        states = await TopicCatalog(connection, (topic,)).states()
    for state in states.values():
        if not state.closed or state.closed[-1].end != state.next or state.next != rows // partitions:
            raise LabFailed(f"{state.topic} should have {rows // partitions} messages in closed ledgers")
    return topic


async def copied_files(session: BenchSession, cluster: LabCluster, topic: str, directory: Path) -> RowFiles:
    """Copy the rows of the topic to files, one per partition. Raises LabFailed."""
    files = RowFiles(str(directory / "rows.parquet"), str(directory / "rows.text"))
    source = topic_source(cluster.url, topic)
    await session.request("copy", source=source, sink_format="parquet", path=files.parquet, columns=[])
    values = ["cast(value as string) value"]
    await session.request(
        "copy", source=file_source("parquet", files.parquet), sink_format="text", path=files.text, columns=values
    )
    return files
