"""The source against a real cluster: its readers called as Spark calls them, then Spark itself."""

import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

import oncelog
from oncelog.core.errors import InvalidArgument, NotFound, TopicNotFound
from oncelog.core.formats.entry import GIVEN_UP_INDEXES
from oncelog_spark.cluster import process_loop
from oncelog_spark.source.reader import (
    NOTHING,
    SCHEMA,
    TopicRanges,
    TopicReader,
    TopicStreamReader,
    new_reader,
    new_stream_reader,
)
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.kills import idle
from tests.cluster.lost_tail import lose_tail, new_ledger

ResultT = TypeVar("ResultT")
Told = tuple[str, int, int, bytes]
#: Ledgers of the tests' cluster hold 16 entries.
ENTRIES = 40
#: Far above what a query takes here: starting Python for each step takes seconds on a busy machine.
STREAM_S = 300
STARTS_MAX = 10
SIZE = 25


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """On the loop of the readers under test: gRPC stumbles over closed ones."""
    return process_loop().run_until_complete(work)


async def publish(url: str, topic: str, name: str, first: int, entries: int, size: int = SIZE) -> None:
    """Compressed entries of `size` messages each: ids from `first` on, values that say whose, some of everything."""
    async with (
        await oncelog.connect(url) as client,
        await client.create_producer(topic, producer_name=name, compression="lz4") as own,
    ):
        for start in range(first, first + entries * size, size):
            ids = range(start, start + size)
            await own.send_many(
                [b"%s %d" % (name.encode(), each) for each in ids],
                sequence_ids=ids,
                keys=[b"k%d" % (each % 3) if each % 2 else None for each in ids],
                event_times_ms=[1000 * each if each % 5 else None for each in ids],
                properties=[{"n": str(each)} if not each % 7 else {} for each in ids],
            )


@pytest.fixture(scope="module")
def flights(cluster: Cluster) -> Cluster:
    """Topic flights: two producers, one after the other, and a batch whose beginning was there before."""

    async def fill() -> None:
        await publish(cluster.url, "flights", "importer", 0, ENTRIES)
        await publish(cluster.url, "flights", "importer", ENTRIES * SIZE - 10, 1)  # 10 of it are stored already
        await publish(cluster.url, "flights", "other", 0, ENTRIES)

    run(fill())
    return cluster


TOTAL = 2 * ENTRIES * SIZE + SIZE - 10


def stored(url: str, topic: str) -> list[Told]:
    """What the SDK reads: (producer, sequence id, number, value)."""

    async def read() -> list[Told]:
        found: list[Told] = []
        async with await oncelog.connect(url) as client, await client.create_reader(topic) as reader:
            while await reader.has_message_available():
                batch = await reader.read_batch()
                found += [(m.producer_name or "", m.sequence_id, m.index, m.value) for m in batch]
        return found

    return run(read())


def reader_of(cluster: Cluster, **options: str) -> TopicReader:
    reader = new_reader({"serviceUrl": cluster.url, **options}, SCHEMA)
    assert isinstance(reader, TopicReader)
    return reader


def streaming(cluster: Cluster, **options: str) -> TopicStreamReader:
    reader = new_stream_reader({"serviceUrl": cluster.url, **options}, SCHEMA)
    assert isinstance(reader, TopicStreamReader)
    return reader


def read_all(reader: TopicReader | TopicStreamReader, partitions: Any) -> list[Told]:
    found: list[Told] = []
    for partition in partitions:
        for batch in reader.read(partition):
            names = ("producer_name", "sequence_id", "index", "value")
            found += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return found


def rows_of(partitions: Any) -> list[int]:
    return [each.span.rows for partition in partitions for each in partition.ranges]


# --- as Spark calls it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["storage", "owner"])
@pytest.mark.parametrize("rows", ["", "300"])
def test_the_source_reads_what_the_sdk_reads(
    flights: Cluster, closed: str, rows: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every message once and in order, from owners and storage nodes, in one task or in many; storage nodes are
    used."""
    options = {"rowsPerPartition": rows} if rows else {}
    reader = reader_of(flights, topic="flights", closedLedgers=closed, **options)
    partitions = list(reader.partitions())
    assert len(partitions) == (-(-TOTAL // 300) if rows else 1)
    with caplog.at_level(logging.WARNING):
        assert read_all(reader, partitions) == stored(flights.url, "flights")
    assert sum(rows_of(partitions)) == TOTAL
    direct = [one for one in partitions if isinstance(one, TopicRanges) and one.ranges[0].closed]
    assert bool(direct) is (closed == "storage")
    assert caplog.text == "", "and none of them had to be given by the owner"


def test_storage_nodes_that_have_moved_since_planning_are_found(
    flights: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The metadata service names their present addresses, so the owner is not read."""
    reader = reader_of(flights, topic="flights")
    [partition] = reader.partitions()
    assert isinstance(partition, TopicRanges)
    [range_] = partition.ranges
    moved = tuple(
        one._replace(members=tuple((member, "127.0.0.1:1") for member, _ in one.members)) for one in range_.closed[:1]
    )
    elsewhere = TopicRanges((type(range_)(range_.span._replace(end=30), moved),))
    with caplog.at_level(logging.WARNING, logger="oncelog_spark.source.range_reader"):
        assert read_all(reader, [elsewhere]) == stored(flights.url, "flights")[:30]
    assert "read from the topic owner" not in caplog.text


@pytest.mark.parametrize(
    ("starting", "ending", "first", "end"),
    [
        ("earliest", "latest", 0, TOTAL),
        ("latest", "latest", TOTAL, TOTAL),
        ('{"flights": 17}', '{"flights": 1100}', 17, 1100),
        ("0", "4102444800000", 0, TOTAL),
        ("4102444800000", "latest", TOTAL, TOTAL),
        ('{"flights": 50}', '{"flights": 20}', 50, 50),
    ],
)
def test_a_read_begins_and_ends_at_the_options_positions(
    flights: Cluster, starting: str, ending: str, first: int, end: int
) -> None:
    """At edges, numbers and times; an end before the beginning gives nothing."""
    reader = reader_of(flights, topic="flights", startingPosition=starting, endingPosition=ending)
    partitions = list(reader.partitions())
    assert partitions == [NOTHING] or sum(rows_of(partitions)) == end - first
    assert read_all(reader, partitions) == stored(flights.url, "flights")[first:end]


def test_a_time_begins_with_the_first_entry_appended_then(cluster: Cluster) -> None:
    """By the owner's clock."""
    run(publish(cluster.url, "timed", "p", 0, 20))
    between_ms = int(time.time() * 1000) + 1
    run(publish(cluster.url, "timed", "p", 500, 3))
    reader = reader_of(cluster, topic="timed", startingPosition=str(between_ms))
    assert read_all(reader, reader.partitions()) == stored(cluster.url, "timed")[500:]
    until = reader_of(cluster, topic="timed", endingPosition=str(between_ms))
    assert read_all(until, until.partitions()) == stored(cluster.url, "timed")[:500]


def test_missing_topics_and_numbers_beyond_the_end_are_refused(flights: Cluster) -> None:
    """Reading creates no topic."""
    with pytest.raises(TopicNotFound, match="nowhere"):
        reader_of(flights, topic="nowhere").partitions()
    with pytest.raises(InvalidArgument, match="has no message 999999"):
        reader_of(flights, topic="flights", startingPosition='{"flights": 999999}').partitions()
    with pytest.raises(InvalidArgument, match="names public/default/fligths"):
        reader_of(flights, topic="flights", startingPosition='{"fligths": 9}').partitions()
    assert reader_of(flights, topicsPattern="nothing-like-that").partitions() == [NOTHING]


def drained(
    reader: TopicStreamReader, offset: dict[str, Any], rows_max: int
) -> tuple[list[list[Told]], dict[str, Any]]:
    """The batches up to the end, and the offset there."""
    batches: list[list[Told]] = []
    while True:
        end = reader.latestOffset(offset, ReadMaxRows(rows_max))
        if end == offset:
            return batches, offset
        batches.append(read_all(reader, reader.partitions(offset, end)))
        offset = end


def test_the_row_limit_is_exact_and_offsets_survive_rolls_and_takeovers(cluster: Cluster) -> None:
    """Every batch has the allowed number of rows while there are enough, and a replay gives the same rows."""
    run(publish(cluster.url, "moved", "p", 0, 40))
    reader = streaming(cluster, topic="moved", maxRowsPerBatch="300")
    assert reader.getDefaultReadLimit() == ReadMaxRows(300)
    assert streaming(cluster, topic="moved").getDefaultReadLimit() == ReadAllAvailable()
    start = reader.initialOffset()
    batches, offset = drained(reader, start, 300)
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    run(kill_owner(cluster, "moved"))
    run(publish(cluster.url, "moved", "p", 1000, 20))
    more, offset = drained(reader, offset, 300)
    assert [len(batch) for batch in more] == [300, 200]
    assert [row for batch in batches + more for row in batch] == stored(cluster.url, "moved")
    assert read_all(reader, reader.partitions(start, offset)) == stored(cluster.url, "moved"), "planned anew, later"
    assert reader.reportLatestOffset() == offset | {"lag": {"rows": 0, "topics": {}}}


async def kill_owner(cluster: Cluster, topic: str) -> None:
    before = await cluster.stats(topic)
    await cluster.kill(await cluster.owner_of(topic), once=idle)
    await cluster.served_by_another(topic, before["owner_epoch"])


def test_available_now_ends_at_the_end_of_its_start(cluster: Cluster) -> None:
    """Although messages are still published."""
    run(publish(cluster.url, "now", "p", 0, 4))
    reader = streaming(cluster, topic="now")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    run(publish(cluster.url, "now", "p", 100, 4))
    batches, _ = drained(reader, start, 60)
    assert [len(batch) for batch in batches] == [60, 40]


def test_later_topics_and_partitions_are_read_from_their_first_message(cluster: Cluster) -> None:
    """While the query runs; a topic of the pattern that is deleted and created anew is another one."""
    run(cluster.change("PUT", f"{rest_path('later-parts')}/partitions", json=2))
    run(publish(cluster.url, "later-parts-partition-1", "p", 0, 1))
    reader = streaming(cluster, topicsPattern="later-.*")
    start = reader.initialOffset()
    batches, offset = drained(reader, start, 10**6)
    assert [len(batch) for batch in batches] == [SIZE]
    for topic in ("later-parts-partition-0", "later-one"):
        run(publish(cluster.url, topic, "p", 0, 2))
    batches, offset = drained(reader, offset, 10**6)
    assert [len(batch) for batch in batches] == [4 * SIZE]
    run(cluster.change("DELETE", rest_path("later-one")))
    with pytest.raises(NotFound, match=r"later-one was deleted: its messages from number 50 on.*failOnDataLoss"):
        drained(reader, offset, 10**6)
    allowing = streaming(cluster, topicsPattern="later-.*", failOnDataLoss="false")
    batches, offset = drained(allowing, offset, 10**6)
    assert [row for batch in batches for row in batch] == [], "everything of it was read"
    assert drained(reader, offset, 10**6) == ([], offset), "and the topic is no longer in the checkpoint"


def test_a_deleted_topic_is_a_loss_unless_that_is_allowed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Messages of a planned batch that are gone when it is planned again after a crash."""
    run(publish(cluster.url, "lost-a", "p", 0, 1))
    run(publish(cluster.url, "lost-b", "p", 0, 1))
    reader = streaming(cluster, topicsPattern="lost-.*")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    run(cluster.change("DELETE", rest_path("lost-a")))
    again = streaming(cluster, topicsPattern="lost-.*")
    with pytest.raises(NotFound, match=r"messages 0 to 24 of public/default/lost-a are gone.*failOnDataLoss"):
        again.partitions(start, end)
    with pytest.raises(NotFound):
        read_all(reader, reader.partitions(start, end))
    allowing = streaming(cluster, topicsPattern="lost-.*", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert len(read_all(allowing, allowing.partitions(start, end))) == SIZE
    assert "lost-a" in caplog.text


@pytest.mark.hazard("position-of-a-lost-part")
def test_offset_in_a_part_that_a_restore_lost_fails_until_that_is_allowed(cluster: Cluster) -> None:
    """The error names the numbers and the remedy. Then the query goes on behind them, and may be strict again."""
    run(publish(cluster.url, "lost-part", "p", 0, 1))
    run(new_ledger(cluster, "lost-part"))
    run(publish(cluster.url, "lost-part", "p", SIZE, 1))
    reader = streaming(cluster, topic="lost-part")
    batches, offset = drained(reader, reader.initialOffset(), 10**6)
    assert [row[2] for batch in batches for row in batch] == list(range(2 * SIZE))
    run(lose_tail(cluster, "lost-part", kept=1))
    run(publish(cluster.url, "lost-part", "another", 0, 1))
    lost = rf"messages {2 * SIZE} to \d+ of public/default/lost-part were given up.*backup restore.*failOnDataLoss"
    with pytest.raises(NotFound, match=lost):
        drained(streaming(cluster, topic="lost-part"), offset, 10**6)
    with pytest.raises(NotFound, match="lost-part were given up"):
        read_all(reader_of(cluster, topic="lost-part"), reader_of(cluster, topic="lost-part").partitions())
    allowing = streaming(cluster, topic="lost-part", failOnDataLoss="false")
    batches, offset = drained(allowing, offset, 10**6)
    behind = 2 * SIZE + GIVEN_UP_INDEXES
    assert [row[1:3] for batch in batches for row in batch] == [(number, behind + number) for number in range(SIZE)]
    assert drained(streaming(cluster, topic="lost-part"), offset, 10**6) == ([], offset)


# --- by Spark ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def load(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrame]:
    def loaded(**options: str) -> DataFrame:
        return spark.read.format("oncelog").options(serviceUrl=cluster.url, **options).load()

    return loaded


@pytest.fixture
def push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_reads_what_the_sdk_reads(flights: Cluster, load: Callable[..., DataFrame]) -> None:
    """In parallel, with all columns."""
    frame = load(topic="flights", rowsPerPartition="1000")
    assert frame.schema == SCHEMA
    found = sorted(frame.collect(), key=lambda row: row["index"])
    told = [(row.producer_name, row.sequence_id, row["index"], bytes(row.value)) for row in found]
    assert told == stored(flights.url, "flights")
    row = found[7 * 3]
    assert (row.topic, row.partition, bytes(row.key), row.properties) == (
        "public/default/flights",
        -1,
        b"k0",
        {"n": "21"},
    )
    assert (row.event_time.timestamp(), found[5].event_time, found[0].key) == (21.0, None, None)
    assert row.batch_index == 21


@pytest.mark.usefixtures("push_down")
def test_filters_never_lose_rows(load: Callable[..., DataFrame], flights: Cluster) -> None:
    """A query with filters gives the same rows as without push-down."""
    every = load(topic="flights")
    wanted = every.where("index >= 990 and index < 1030 and producer_name = 'other' and publish_time > '2020-01-01'")
    expected = [one for one in stored(flights.url, "flights")[990:1030] if one[0] == "other"]
    found = [(row.producer_name, row.sequence_id, row["index"], bytes(row.value)) for row in wanted.collect()]
    assert expected
    assert sorted(found, key=lambda one: one[2]) == expected
    assert every.where("index < 0").count() == 0


def run_stream(start: Callable[[], StreamingQuery]) -> bool:
    """Run a query to its end. Spark gives the Python of its planning ten seconds to start, however busy the machine is;
    a query that ended for that, before its first batch, is started again, as its user would."""
    for _ in range(STARTS_MAX):
        try:
            return bool(start().awaitTermination(STREAM_S))
        except StreamingQueryException as error:
            if "worker failed to connect back" not in str(error):
                raise
    return False


def test_a_stream_continues_behind_its_checkpoint(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, load: Callable[..., DataFrame]
) -> None:
    """Three runs of one query: each message in exactly one batch, with a partition that is added in between."""
    run(cluster.change("PUT", f"{rest_path('stream-parts')}/partitions", json=2))
    run(publish(cluster.url, "stream-parts-partition-0", "p", 0, 8))
    found: list[tuple[int, int]] = []
    sizes: list[int] = []

    def keep(batch: DataFrame, _number: int) -> None:
        rows = batch.select("partition", "index").collect()
        sizes.append(len(rows))
        found.extend((row["partition"], row["index"]) for row in rows)

    def go_on() -> None:
        stream = spark.readStream.format("oncelog").options(
            serviceUrl=cluster.url, topicsPattern="stream-.*", maxRowsPerBatch="120"
        )
        query = stream.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert run_stream(query.trigger(availableNow=True).start)

    go_on()
    assert sizes == [120, 80]
    run(publish(cluster.url, "stream-parts-partition-1", "p", 0, 2))
    run(publish(cluster.url, "stream-parts-partition-0", "p", 200, 1))
    go_on()
    go_on()
    assert sizes == [120, 80, 75]
    assert sorted(found) == [(0, n) for n in range(225)] + [(1, n) for n in range(50)]


def test_bad_options_reach_the_user(load: Callable[..., DataFrame]) -> None:
    """Through Spark's own errors, with the option's name."""
    with pytest.raises(PySparkException, match="unknown option topik; the most similar option is topic"):
        load(topik="flights").count()
    with pytest.raises(PySparkException, match="topic public/default/nowhere does not exist"):
        load(topic="nowhere").count()
