"""What is read: the same rows in topics of several parts, in closed ledgers; and as files of Spark's own formats."""

import base64
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from oncelog.client.client import BATCH_BYTES_MAX, AsyncClient
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.consume import fill
from oncelog.lab.bench.loads import make_values
from oncelog.lab.bench.processes import BenchFailed
from oncelog.lab.spark_bench.formats import file_source, topic_source
from oncelog.lab.spark_bench.sessions import Session
from oncelog.pipeline.cluster import ClusterConnection
from oncelog.pipeline.options import ConnectionOptions
from oncelog.pipeline.source.topic_catalog import TopicCatalog

_NAMESPACE = "public/default"
_REST_TIMEOUT_S = 30.0
_DISTINCT_VALUES = 1000
_ENTRY_ROWS = 10_000


class Files(NamedTuple):
    """Directories of the same rows. text: the values alone, a line each."""

    parquet: str
    text: str


def new_topic() -> str:
    return f"{_NAMESPACE}/bench-spark-{uuid.uuid4().hex[:12]}"


def printable_values(message_bytes: int) -> list[bytes]:
    """As the other benches' values, but a line of text each."""
    noise = max(1, message_bytes // 2)
    distinct = make_values(noise * 2, min(_DISTINCT_VALUES, _ENTRY_ROWS))
    return [base64.b64encode(each)[:noise].ljust(message_bytes, b"x")[:message_bytes] for each in distinct]


async def filled_topic(
    cluster: Cluster,
    client: AsyncClient,
    *,
    rows: int,
    parts: int,
    values: Sequence[bytes],
    entry_bytes: int = BATCH_BYTES_MAX,
) -> str:
    """A topic whose rows, shared evenly by its parts, are all in closed ledgers. Raises BenchFailed.

    entry_bytes: of the values of an entry; by default as the SDK packs them.
    """
    topic = new_topic()
    names = [topic] if parts == 1 else [f"{topic}-partition-{number}" for number in range(parts)]
    async with httpx.AsyncClient(base_url=cluster.admin_url, timeout=_REST_TIMEOUT_S, trust_env=False) as http:
        if parts > 1:
            await _put(http, f"/admin/v2/persistent/{topic}/partitions", parts)
        listed = [values[index % len(values)] for index in range(_ENTRY_ROWS)]
        for name in names:
            async with await client.create_producer(
                name, producer_name="bench", batch_bytes_max=entry_bytes
            ) as producer:
                await fill(producer, listed, rows // parts)
            await _put(http, f"/admin/v2/persistent/{name}/unload", None)
    async with ClusterConnection(ConnectionOptions(cluster.url)) as connection:
        await TopicCatalog(
            connection, (topic,)
        ).states()  # whoever asks makes an owner serve it again, with a new ledger
        states = await TopicCatalog(connection, (topic,)).states()
    for state in states.values():
        if not state.closed or state.closed[-1].end != state.next or state.next != rows // parts:
            raise BenchFailed(f"{state.topic} should have {rows // parts} messages in closed ledgers")
    return topic


async def copied_files(session: Session, cluster: Cluster, topic: str, directory: Path) -> Files:
    """The topic's rows as files, one for each part. Raises BenchFailed."""
    files = Files(str(directory / "rows.parquet"), str(directory / "rows.text"))
    source = topic_source(cluster.url, topic)
    await session.ask("copy", source=source, sink_format="parquet", path=files.parquet, columns=[])
    values = ["cast(value as string) value"]
    await session.ask(
        "copy", source=file_source("parquet", files.parquet), sink_format="text", path=files.text, columns=values
    )
    return files


async def _put(http: httpx.AsyncClient, path: str, body: object) -> None:
    try:
        answer = await http.put(path, json=body) if body is not None else await http.put(path)
    except httpx.HTTPError as error:
        raise BenchFailed(f"{http.base_url} does not answer: {error!r}; is --admin-url right?") from error
    if answer.is_error:
        raise BenchFailed(f"{answer.request.url} answers {answer.status_code}: {answer.text[:500]}")
