"""The source: whole topics read in batches, by one and by two cores, against files of the same rows.

Closed ledgers are read from storage nodes, but for the rows that say so. "Parquet" and "text" are Spark's own sources
of the same rows, text of their values alone; each ratio is to Parquet read with as many cores. What stands for scaling
is the ratio of two cores to one: the cluster has the same cores, so where reading keeps both busy it cannot be 2.
"""

from functools import partial

from oncelog.client.client import AsyncClient
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.figures import Row
from oncelog.lab.bench.processes import BenchFailed
from oncelog.lab.spark_bench.corpus import Files, filled_topic, printable_values
from oncelog.lab.spark_bench.formats import Place, file_source, topic_source
from oncelog.lab.spark_bench.sessions import Session
from oncelog.lab.spark_bench.settings import SparkSettings
from oncelog.lab.spark_bench.turns import Sample, Tell, in_turns, rate_row

PARTS = (1, 2, 4)
PARQUET, TEXT = "Parquet", "text"
#: Messages of an entry where producers send few at a time.
SMALL_ENTRY_ROWS = 20
_SMALL_SHARE = 5


async def source_rows(
    cluster: Cluster,
    client: AsyncClient,
    sessions: tuple[Session, Session],
    settings: SparkSettings,
    topics: dict[int, str],
    files: Files,
    tell: Tell,
) -> list[Row]:
    """topics: {number of parts: the topic with settings.rows messages}. Raises BenchFailed."""
    few = settings.rows // _SMALL_SHARE
    small = await filled_topic(
        cluster,
        client,
        rows=few,
        parts=2,
        values=printable_values(settings.message_bytes),
        entry_bytes=SMALL_ENTRY_ROWS * settings.message_bytes,
    )
    places: dict[str, tuple[Place, int]] = {
        f"source, {parts} part{'s' * (parts > 1)}": (topic_source(cluster.url, topic), settings.rows)
        for parts, topic in topics.items()
    }
    through_owners = topic_source(cluster.url, topics[2], closedLedgers="owner")
    places |= {
        "source, 2 parts, through owners": (through_owners, settings.rows),
        f"source, 2 parts, entries of {SMALL_ENTRY_ROWS}": (topic_source(cluster.url, small), few),
        PARQUET: (file_source("parquet", files.parquet), settings.rows),
        TEXT: (file_source("text", files.text), settings.rows),
    }
    for what, (place, count) in places.items():
        told = await sessions[1].ask("count", source=place)
        if told["rows"] != count:
            raise BenchFailed(f"{what}: {told['rows']} rows are there, and not {count}")
    contestants = {
        _name(what, session): partial(session.rate, count, "read", source=place)
        for what, (place, count) in places.items()
        for session in sessions
    }
    samples = await in_turns(contestants, runs=settings.runs, tell=tell, what="source")
    return _shown(list(places), samples, sessions, settings.message_bytes)


def _shown(
    whats: list[str], samples: dict[str, list[Sample]], sessions: tuple[Session, Session], size: int
) -> list[Row]:
    one, two = sessions
    found = []
    for what in whats:
        for session in sessions:
            theirs = None if what == PARQUET else samples[_name(PARQUET, session)]
            found.append(
                rate_row(_name(what, session), samples[_name(what, session)], theirs, of=PARQUET, row_bytes=size)
            )
    for what in whats:
        ours, theirs = samples[_name(what, two)], samples[_name(what, one)]
        found.append(rate_row(f"{what}: 2 cores to 1", ours, theirs, of=one.master))
    return found


def _name(what: str, session: Session) -> str:
    return f"{what}, {session.master}"
