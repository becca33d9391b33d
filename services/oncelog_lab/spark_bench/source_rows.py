"""The source: whole topics are read in batches, with one core and with two, against files of the same rows.

Closed ledgers are read from storage nodes, except in the row "through owners". "Parquet" and "text" are Spark's own
sources of the same rows, text with the values only. Each ratio is to Parquet with the same number of cores. The ratio
of two cores to one shows the scaling; the cluster uses the same cores, so it cannot be 2 if reading keeps both busy.
"""

from functools import partial

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import Tell
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.alternation import SparkSample, alternate, rate_row
from oncelog_lab.spark_bench.corpus import RowFiles, filled_topic, printable_values
from oncelog_lab.spark_bench.formats import Dataset, file_source, topic_source
from oncelog_lab.spark_bench.sessions import BenchSession
from oncelog_lab.spark_bench.settings import SparkSettings

PARTITIONS = (1, 2, 4)
PARQUET, TEXT = "Parquet", "text"
#: Messages per entry of a producer that sends few at a time.
SMALL_ENTRY_ROWS = 20
_SMALL_SHARE = 5


async def source_rows(
    cluster: LabCluster,
    client: AsyncClient,
    sessions: tuple[BenchSession, BenchSession],
    settings: SparkSettings,
    topics: dict[int, str],
    files: RowFiles,
    tell: Tell,
) -> list[BenchRow]:
    """topics: {number of partitions: the topic with settings.rows messages}. Raises LabFailed."""
    few = settings.rows // _SMALL_SHARE
    small = await filled_topic(
        cluster,
        client,
        rows=few,
        partitions=2,
        values=printable_values(settings.message_bytes),
        entry_bytes=SMALL_ENTRY_ROWS * settings.message_bytes,
    )
    places: dict[str, tuple[Dataset, int]] = {
        f"source, {partitions} partition{'s' * (partitions > 1)}": (topic_source(cluster.url, topic), settings.rows)
        for partitions, topic in topics.items()
    }
    through_owners = topic_source(cluster.url, topics[2], closedLedgers="owner")
    places |= {
        "source, 2 partitions, through owners": (through_owners, settings.rows),
        f"source, 2 partitions, entries of {SMALL_ENTRY_ROWS}": (topic_source(cluster.url, small), few),
        PARQUET: (file_source("parquet", files.parquet), settings.rows),
        TEXT: (file_source("text", files.text), settings.rows),
    }
    for what, (place, count) in places.items():
        answer = await sessions[1].request("count", source=place)
        if answer["rows"] != count:
            raise LabFailed(f"{what}: found {answer['rows']} rows instead of {count}")
    loads = {
        session.named(what): partial(session.rate, count, "read", source=place)
        for what, (place, count) in places.items()
        for session in sessions
    }
    samples = await alternate(loads, runs=settings.runs, tell=tell, what="source")
    return _shown(list(places), samples, sessions, settings.message_bytes)


def _shown(
    whats: list[str], samples: dict[str, list[SparkSample]], sessions: tuple[BenchSession, BenchSession], size: int
) -> list[BenchRow]:
    one, two = sessions
    found = []
    for what in whats:
        for session in sessions:
            theirs = None if what == PARQUET else samples[session.named(PARQUET)]
            found.append(
                rate_row(session.named(what), samples[session.named(what)], theirs, of=PARQUET, row_bytes=size)
            )
    for what in whats:
        ours, theirs = samples[two.named(what)], samples[one.named(what)]
        found.append(rate_row(f"{what}: 2 cores to 1", ours, theirs, of=one.master))
    return found
