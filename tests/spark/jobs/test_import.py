"""Imports into a real cluster with Spark, repeated, killed and started twice: each row of each file is stored once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from oncelog.core.errors import Conflict, InvalidArgument
from oncelog_spark.file_import.files import batches_of, list_files, open_source
from oncelog_spark.file_import.job import ImportJournal, ImportResult, import_files
from oncelog_spark.file_import.messages import messages_of
from oncelog_spark.file_import.options import ImportOptions, import_options
from oncelog_spark.file_import.records import encode_begun
from oncelog_spark.file_import.tasks import check_file, publish_rows
from oncelog_spark.session import failure_of
from oncelog_spark.sink.log import SinkLog, connected
from oncelog_spark.sink.rows import Rows
from tests.cluster.cluster_fixture import Cluster
from tests.spark.sink.test_sink_stream import messages

#: A file of Parquet is read in batches of 10000 rows.
ROWS = 25_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """One file of several batches, and a small one below a directory."""
    place = tmp_path / "in"
    (place / "sub").mkdir(parents=True)
    write(place / "large.parquet", ROWS)
    write(place / "sub/small.parquet", 10)
    return place


def write(path: Path, rows: int) -> None:
    parquet.write_table(pa.table({"v": [f"{path.stem} {n}" for n in range(rows)], "k": ["k"] * rows}), path)


def options(cluster: Cluster, source: Path, topic: str, **more: str) -> ImportOptions:
    given = {"serviceUrl": cluster.url, "source": str(source), "topic": topic, "name": "landing"}
    return import_options(given | {"value": "v", "key": "k"} | more, {})


def run(spark: SparkSession, own: ImportOptions) -> ImportResult:
    """Raises what the command would explain."""
    try:
        return import_files(spark, own, lambda _: None)
    except Exception as error:
        raise failure_of(error) or error from error


def stored(cluster: Cluster, topic: str) -> dict[str, list[str]]:
    """{file: values in the order of the log}, and every id once."""
    found: dict[str, list[str]] = {}
    for message in messages(cluster, topic):
        assert message.producer_name is not None
        values = found.setdefault(message.producer_name.rpartition("/")[2], [])
        assert message.sequence_id == len(values)
        assert message.key == b"k"
        values.append(message.value.decode())
    return found


def expected(**rows: int) -> dict[str, list[str]]:
    return {f"{name}.parquet": [f"{name} {n}" for n in range(count)] for name, count in rows.items()}


def test_an_import_that_was_killed_is_finished_and_then_adds_nothing(
    spark: SparkSession, cluster: Cluster, source: Path
) -> None:
    """It died within a file, after its record was stored and before the end: the rest follows. Then a new file
    comes."""
    own = options(cluster, source, "landed")
    with connected(own.sink) as client:
        records = ImportJournal(client, own)
        records.open()
        files = [check_file(own, found) for found in list_files(own.source, own.glob)]
        records.append(encode_begun(records.target_id, files))
        file = files[0]
        pieces = messages_of(file.path, batches_of(open_source(own.source), file.path, own.mapped), own.mapped)
        with pytest.raises(KeyboardInterrupt):
            publish_rows(SinkLog(client, own.sink), own, file, dying(pieces))
    before = stored(cluster, "landed")
    assert 0 < len(before["large.parquet"]) < ROWS
    outcome = run(spark, own)
    assert (outcome.new, outcome.resumed, outcome.rows) == (0, 2, ROWS + 10 - len(before["large.parquet"]))
    assert stored(cluster, "landed") == expected(large=ROWS, small=10)
    write(source / "more.parquet", 5)
    outcome = run(spark, own)
    assert (outcome.found, outcome.done, outcome.new, outcome.rows) == (3, 2, 1, 5)
    assert run(spark, own).rows == 0
    assert stored(cluster, "landed") == expected(large=ROWS, small=10, more=5)


def dying(pieces: Iterator[Rows]) -> Iterator[Rows]:
    yield next(pieces)
    raise KeyboardInterrupt


def test_a_bad_or_changed_file_is_named_and_not_published(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """A row of a new file, and a name that is not UTF-8: other files go on. And a file that has changed."""
    place = tmp_path / "in"
    place.mkdir()
    (place / "a.csv").write_text("v,k\n1,k\n")
    own = options(cluster, place, "checked", format="csv")
    assert run(spark, own).rows == 1
    (place / "b.csv").write_text("v,k\n1,k\n2,k,more\n")
    (place / "c.csv").write_text("v,k\n1,k\n2,k\n3,k\n")
    (place / "d\udce9.csv").write_text("v,k\n1,k\n")
    with pytest.raises(
        InvalidArgument,
        match=r"(?s)2 files cannot be imported; 1 file with 3 rows was published now:.*d\\xe9\.csv: .*b\.csv .*Row #3",
    ):
        run(spark, own)
    (place / "d\udce9.csv").unlink()
    (place / "b.csv").write_text("v,k\n1,k\n2,k\n")
    assert run(spark, own).rows == 2, "a file that was never begun may be corrected"
    (place / "a.csv").write_text("v,k\n2,k\n")
    with pytest.raises(Conflict, match=r"a\.csv is imported, and has changed since"):
        run(spark, own)
    assert Counter(map(len, stored(cluster, "checked").values())) == {1: 1, 2: 1, 3: 1}
