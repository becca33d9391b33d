"""Exports of a real cluster with Spark: every message in one file over several runs, and damaged files are found."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import oncelog
from oncelog.core.errors import Conflict
from oncelog_spark.export import job
from oncelog_spark.export.clean import clean
from oncelog_spark.export.job import export_topics, write_by_date
from oncelog_spark.export.manifest import MANIFESTS
from oncelog_spark.export.options import ExportLocation, ExportOptions, export_location, export_options
from oncelog_spark.export.reading import read_back, read_export, verify_export
from oncelog_spark.export.store import ExportStore, FileStore, HadoopStore, LocalStore
from tests.cluster.clients_of_pulsar import sent_by_a_client_of_pulsar
from tests.cluster.cluster_fixture import Cluster
from tests.core.pulsar_entries import Sent, batched, encrypted

DAY_MS = 86_400_000
#: Messages of each entry; an entry has one publish time.
SIZE = 10
#: Rows after which a sort of Spark spills.
SPILL = "spark.shuffle.spill.numElementsForceSpillThreshold"


def publish(cluster: Cluster, topic: str, entries: int) -> None:
    with (
        oncelog.Client(cluster.url) as client,
        client.create_producer(topic, producer_name="source", compression="zstd") as producer,
    ):
        for _ in range(entries):
            producer.send_many([b"%d" % n for n in range(SIZE)], properties=[{"n": str(n)} for n in range(SIZE)])


def options(cluster: Cluster, directory: Path, **more: str) -> ExportOptions:
    given = {"serviceUrl": cluster.url, "directory": str(directory), "topics": "exported,exported-too"}
    return export_options(given | more, {})


def rows_of(spark: SparkSession, directory: Path) -> list[tuple[str, int, bytes]]:
    found = read_export(spark, str(directory)).select("topic", "index", "value").collect()
    return sorted((row["topic"].rpartition("/")[2], row["index"], bytes(row["value"])) for row in found)


def expected(**entries: int) -> list[tuple[str, int, bytes]]:
    return sorted(
        (topic.replace("_", "-"), n, b"%d" % (n % SIZE))
        for topic, count in entries.items()
        for n in range(count * SIZE)
    )


@pytest.fixture(scope="module")
def directory(spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of two runs, and what a third left that died before its manifest."""
    place = tmp_path_factory.mktemp("export") / "of topics"
    publish(cluster, "exported", 20)
    publish(cluster, "exported-too", 2)
    export_topics(spark, options(cluster, place, rowsPerFile="150"), 1, lambda _: None)
    publish(cluster, "exported", 1)
    outcome = export_topics(spark, options(cluster, place), 2, lambda _: None)
    assert outcome.manifest is not None
    assert [(r.first, r.end) for r in outcome.manifest.ranges] == [(200, 210)]
    shutil.copytree(place / outcome.manifest.run, place / "run=000002-dead")
    ExportStore(LocalStore(place)).claim("run=000002-dead")
    return place


def test_each_message_is_exported_once_over_several_runs(
    spark: SparkSession, cluster: Cluster, directory: Path
) -> None:
    """Leftovers of a dead run are reported and not read; where nothing is new, nothing is written."""
    assert rows_of(spark, directory) == expected(exported=21, exported_too=2)
    before = sorted(directory.rglob("*"))
    outcome = export_topics(spark, options(cluster, directory), 3, lambda _: None)
    assert outcome.manifest is None
    assert [each.run for each in outcome.leftovers] == ["run=000002-dead"]
    assert sorted(directory.rglob("*")) == before


def test_an_export_has_all_columns_of_the_source(spark: SparkSession, cluster: Cluster, directory: Path) -> None:
    """And the date of publishing."""
    source = spark.read.format("oncelog").option("serviceUrl", cluster.url).option("topics", "exported,exported-too")
    told = {tuple(map(str, row)) for row in source.load().collect()}
    frame = read_export(spark, str(directory))
    assert {tuple(map(str, row[:-1])) for row in frame.collect()} == told
    dates = frame.selectExpr("date = to_date(publish_time) as same").distinct().collect()
    assert [row["same"] for row in dates] == [True]


def test_messages_of_clients_of_pulsar(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Null values are null. An encrypted message stops a query and an export, and both say how to go on."""

    async def publish_both() -> None:
        async with oncelog.AsyncClient(cluster.url) as client:
            plain = batched([Sent(1, b"1", b"k", {"a": "b"}), Sent(2, None)])
            await sent_by_a_client_of_pulsar(client, "of-pulsar", plain)
            await sent_by_a_client_of_pulsar(client, "of-pulsar", encrypted(3))

    asyncio.run(publish_both())
    source = spark.read.format("oncelog").option("serviceUrl", cluster.url).option("topic", "of-pulsar")
    before = source.option("endingPosition", '{"of-pulsar": 2}').load().select("value", "key", "properties")
    wanted = [(b"1", b"k", {"a": "b"}), (None, None, {})]
    assert [(row[0], row[1], row[2] or {}) for row in before.collect()] == wanted
    own = {"topics": "of-pulsar"}
    with pytest.raises(Exception, match=r"MessageEncrypted.*onEncrypted=pass"):
        export_topics(spark, options(cluster, tmp_path / "export", **own), 1, lambda _: None)
    passing = options(cluster, tmp_path / "export", **own, onEncrypted="pass")
    outcome = export_topics(spark, passing, 2, lambda _: None)
    assert outcome.manifest is not None
    rows = read_export(spark, str(tmp_path / "export")).orderBy("index").select("value", "key", "properties").collect()
    marked = (None, None, {"oncelog.encrypted": "our-key"})
    assert [(row[0], row[1], row[2] or {}) for row in rows] == [*wanted, marked]


def test_the_rows_of_a_file_are_in_the_order_of_the_log(directory: Path) -> None:
    """Although nothing is sorted."""
    files = list(directory.rglob("run=000000*/topic=*/date=*/*.parquet"))
    found = [parquet.ParquetFile(path).read(["index"]).column(0).to_pylist() for path in files]
    assert [numbers for numbers in found if numbers != [*range(numbers[0], numbers[-1] + 1)]] == []
    assert sum(map(len, found)) == 220


def test_a_task_with_more_dates_than_open_files_writes_every_row_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sorts the rest of its rows by date, and its merge of what it has spilled does not keep their order."""
    monkeypatch.setattr(job, "DATES_AT_ONCE", 3)
    dates, count = 8, 4_000
    clock = f"timestamp_millis({DAY_MS} * (20000 + index * 5 % {dates}) + index)"  # no two rows of a date in turn
    columns = ("id as index", "if(id < 0, null, 't') as topic")  # no constant, which Spark would not sort by
    rows = spark.range(0, count, 1, 1).selectExpr(*columns).selectExpr("*", f"{clock} as publish_time")
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(SPILL, "500")
    try:
        sizes = write_by_date(spark, rows, ExportStore(LocalStore(tmp_path)), str(tmp_path), "run=000000-x")
    finally:
        conf.remove(SPILL)
    found = [parquet.ParquetFile(tmp_path / path).read(["index"]).column(0).to_pylist() for path in sizes]
    assert [len(numbers) for numbers in found] == [count // dates] * dates
    assert sorted(number for numbers in found for number in numbers) == [*range(count)]
    assert [numbers for numbers in found if numbers != sorted(numbers)] == []


def test_reading_back_sums_numbers_exactly_and_names_every_partition(spark: SparkSession, tmp_path: Path) -> None:
    """A file with messages of two partitions cannot be taken for a file of one."""
    numbers = [2**62, 2**62 + 1, 2**32 - 1, 5]
    columns = {"index": pa.array(numbers, pa.int64()), "partition": pa.array([0, 0, 0, 1], pa.int32())}
    path = "run=000000-x/topic=t/date=2026-01-01/a.parquet"
    (tmp_path / path).parent.mkdir(parents=True)
    parquet.write_table(pa.table(columns), tmp_path / path)
    [found] = read_back(spark, str(tmp_path), {path: 7})
    assert found.index_sum == sum(numbers)
    assert (found.file.topic, found.file.rows) == ("t-partition-0 and t-partition-1", 4)
    assert (found.file.first, found.file.last) == (5, 2**62 + 1)


def test_verify_finds_missing_changed_and_foreign_files(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    """One value, other rows, a missing file, an extra file; and no problem in an intact export."""
    good = verify_export(spark, str(directory))
    assert (good.problems, good.rows, good.manifests) == ((), 230, 2)
    place = tmp_path / "copy"
    shutil.copytree(directory, place)
    files = [file.path for manifest in ExportStore(LocalStore(place)).manifests() for file in manifest.files]
    assert len(files) == 4
    (place / files[0]).unlink()
    shutil.copy(place / files[1], place / files[2])
    table = parquet.ParquetFile(place / files[3]).read()
    values = table.column("value").to_pylist()
    at = table.schema.get_field_index("value")
    parquet.write_table(table.set_column(at, "value", pa.array([b"x", *values[1:]])), place / files[3])
    (place / files[1]).with_name("more.parquet").write_bytes((place / files[1]).read_bytes())
    for crc in place.rglob(".*.crc"):
        crc.unlink()
    problems = sorted(verify_export(spark, str(place)).problems)
    assert len(problems) == 4
    told = " ".join(problems)
    assert f"{files[0]} is missing" in told
    assert f"{files[2]} has changed since it was written" in told
    assert re.search(f"{re.escape(files[3])} has changed since it was written: .*checksum", told)
    assert "more.parquet is in the directory of a run, but not in its manifest" in told


def test_a_run_whose_number_is_taken_meanwhile_fails(
    spark: SparkSession, cluster: Cluster, directory: Path, tmp_path: Path
) -> None:
    """A clean comes between the files and the manifest: an error, no files left, and the next run exports
    everything."""
    place = tmp_path / "copy"
    shutil.copytree(directory, place)
    publish(cluster, "exported-more", 1)
    mine = options(cluster, place, topics="exported-more")
    cleaned: list[object] = []

    def interfere(what: str) -> None:
        if what.startswith("reading") and not cleaned:
            cleaned.extend(clean(ExportStore(LocalStore(place)), "cleaning", 4))

    with pytest.raises(Conflict, match="stored manifest 2 first"):
        export_topics(spark, mine, 3, interfere)
    assert len(cleaned) == 2, "the dead run's and the living one's"
    assert rows_of(spark, place) == expected(exported=21, exported_too=2)
    outcome = export_topics(spark, mine, 5, lambda _: None)
    assert outcome.leftovers == ()
    assert rows_of(spark, place) == expected(exported=21, exported_too=2, exported_more=1)


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "hadoop"])
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> FileStore:
    """Hadoop's own file system stands in for HDFS: what it does not have is another machine's atomic rename."""
    place: ExportLocation = export_location(str(tmp_path / "a place"))
    return LocalStore(Path(place.path)) if request.param == "local" else HadoopStore(spark, place.uri)


def test_a_store_creates_a_file_only_under_a_free_name(store: FileStore) -> None:
    """The file is complete, is listed, and can be removed."""
    assert (store.names(""), store.names(MANIFESTS), store.sizes("run=1")) == ([], [], {})
    store.write("run=1/draft", json.dumps({"n": 1}).encode())
    store.write("run=2/topic=a%2Fb/x", b"other")
    assert store.publish("run=1/draft", f"{MANIFESTS}/0.json")
    assert not store.publish("run=2/topic=a%2Fb/x", f"{MANIFESTS}/0.json")
    assert json.loads(store.read(f"{MANIFESTS}/0.json")) == {"n": 1}
    assert store.names("") == [MANIFESTS, "run=1", "run=2"]
    assert {path: size for path, size in store.sizes("run=2").items() if not path.endswith(".crc")} == {
        "run=2/topic=a%2Fb/x": 5
    }
    store.remove("run=2")
    store.remove("run=3")
    assert store.names("") == [MANIFESTS, "run=1"]
