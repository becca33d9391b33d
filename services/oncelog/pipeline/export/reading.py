"""Reading an export: the files that its manifests name, and no others; and whether they are as they were.

from oncelog.pipeline.export.reading import read_export
frame = read_export(spark, "/data/flights")
"""

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StringType, StructField, StructType

from oncelog.core.errors import CorruptEntry
from oncelog.pipeline.export.manifest import DataFile, ExportManifest
from oncelog.pipeline.export.options import export_location
from oncelog.pipeline.export.run import VerifiedFile
from oncelog.pipeline.export.store import ExportStore, store_of
from oncelog.pipeline.source.reader import SCHEMA

COLUMNS = [*SCHEMA.names, "date"]
_IN_PATHS = {"topic", "date"}
FILE_SCHEMA = StructType(
    [*(each for each in SCHEMA.fields if each.name not in _IN_PATHS), StructField("topic", StringType()),
     StructField("date", DateType())]
)  # fmt: skip
#: Times as other readers know them, and as they are: whatever a producer's clock said.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
#: Files are found bad one by one up to so many at once; reading stops at the first.
_CHECKED_AT_ONCE = 64
_CHECKSUM = (
    "hex(bit_xor(xxhash64(key, value, topic, partition, topic_id, ledger_id, entry_id, batch_index, index, "
    "publish_time, event_time, producer_name, sequence_id, map_entries(properties), date)))"
)


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """problems: a sentence each; empty: files and manifests agree."""

    manifests: int
    files: int
    rows: int
    size_bytes: int
    topics: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_export(spark: SparkSession, directory: str) -> DataFrame:
    """Every exported message once: the source's columns, and `date`. Raises InvalidArgument, CorruptEntry, LogHole."""
    place = export_location(directory)
    manifests = ExportStore(store_of(place, spark)).manifests()
    files = [f"{place.uri}/{file.path}" for manifest in manifests for file in manifest.files]
    return _frame(spark, place.uri, files).select(*COLUMNS)


def verify_export(spark: SparkSession, directory: str) -> VerifiedExport:
    """Read all of it, and compare each file with what its manifest says. Raises CorruptEntry, LogHole where manifests
    themselves are not there."""
    place = export_location(directory)
    exported = ExportStore(store_of(place, spark))
    manifests = exported.manifests()
    problems = list(_chain_problems(manifests))
    sizes: dict[str, int] = {}
    for manifest in manifests:
        if manifest.files:
            sizes |= exported.sizes(manifest.run)
    named = {file.path: file for manifest in manifests for file in manifest.files}
    problems += [f"{path} is missing" for path in sorted(set(named) - set(sizes))]
    problems += [f"{path} lies in the directory of a run whose manifest does not name it" for path in
                 sorted(set(sizes) - set(named))]  # fmt: skip
    present = sorted(set(named) & set(sizes))
    with session_settings(spark):
        for at in range(0, len(present), _CHECKED_AT_ONCE):
            problems += _file_problems(
                spark, place.uri, [named[path] for path in present[at : at + _CHECKED_AT_ONCE]], sizes
            )
    reached: dict[str, int] = {topic: r.next for topic, r in manifests[-1].reached.items()} if manifests else {}
    rows = sum(manifest.rows for manifest in manifests)
    size_bytes = sum(manifest.size_bytes for manifest in manifests)
    return VerifiedExport(len(manifests), len(named), rows, size_bytes, reached, tuple(problems))


def read_back(spark: SparkSession, uri: str, sizes: Mapping[str, int]) -> list[VerifiedFile]:
    """What files hold, by path. A session of `session_settings`. sizes: {path: bytes}."""
    if not sizes:
        return []
    frame = _frame(spark, uri, [f"{uri}/{path}" for path in sorted(sizes)])
    part = f.expr("if(partition < 0, topic, concat(topic, '-partition-', partition))")
    grouped = frame.groupBy(f.col("_metadata.file_path").alias("path"), part.alias("part")).agg(
        f.count("*").alias("rows"),
        f.min("index").alias("first"),
        f.max("index").alias("last"),
        f.expr("sum(cast(index as decimal(38, 0)))").alias("index_sum"),
        f.expr(_CHECKSUM).alias("checksum"),
    )
    found = []
    for row in grouped.collect():
        path = _relative(row["path"], sizes)
        file = DataFile(path, row["part"], sizes[path], row["rows"], row["first"], row["last"], row["checksum"])
        found.append(VerifiedFile(file, int(row["index_sum"])))
    return sorted(found, key=lambda each: each.file.path)


@contextmanager
def session_settings(spark: SparkSession) -> Iterator[None]:
    """The session's settings are put back afterwards."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def _frame(spark: SparkSession, uri: str, files: Sequence[str]) -> DataFrame:
    if not files:
        return spark.createDataFrame([], FILE_SCHEMA)
    return spark.read.schema(FILE_SCHEMA).option("basePath", uri).parquet(*files)


def _relative(told: str, paths: Mapping[str, int]) -> str:
    """Which of the paths Spark's URI of a file means."""
    whole = unquote(told)
    at = whole.find("/run=")
    while at >= 0:
        if whole[at + 1 :] in paths:
            return whole[at + 1 :]
        at = whole.find("/run=", at + 1)
    raise CorruptEntry(f"Spark names a file that was not listed: {told}")


def _chain_problems(manifests: Sequence[ExportManifest]) -> Iterator[str]:
    """Each manifest must go on where the ones before ended, and its files must hold its ranges."""
    reached: dict[str, tuple[str, int]] = {}
    for manifest in manifests:
        for each in manifest.ranges:
            topic_id, following = reached.get(each.topic, (each.topic_id, each.first))
            if (topic_id, following) != (each.topic_id, each.first):
                yield f"manifest {manifest.number}: {each.topic} goes on at {each.first}, {following} was reached"
            rows = sum(file.rows for file in manifest.files if file.topic == each.topic)
            if rows != each.rows:
                yield f"manifest {manifest.number}: {rows} rows of {each.topic} in its files, {each.rows} in its range"
            reached[each.topic] = (each.topic_id, each.end)


def _file_problems(spark: SparkSession, uri: str, files: Sequence[DataFile], sizes: Mapping[str, int]) -> list[str]:
    """Of these files; each is read on its own where they cannot be read together."""
    try:
        found = {
            each.file.path: each.file for each in read_back(spark, uri, {file.path: sizes[file.path] for file in files})
        }
    except PySparkException as error:
        if len(files) == 1:
            return [f"{files[0].path} cannot be read: {str(error).splitlines()[0][:200]}"]
        halves = files[: len(files) // 2], files[len(files) // 2 :]
        return functools.reduce(operator.iadd, (_file_problems(spark, uri, half, sizes) for half in halves), [])
    return [f"{file.path} is not as it was written: {_differences(file, found.get(file.path))}" for file in files
            if found.get(file.path) != file]  # fmt: skip


def _differences(named: DataFile, found: DataFile | None) -> str:
    if found is None:
        return "it has no rows"
    names = ("size_bytes", "rows", "first", "last", "checksum", "topic")
    told = [f"{name} {getattr(found, name)}, not {getattr(named, name)}" for name in names
            if getattr(found, name) != getattr(named, name)]  # fmt: skip
    return "; ".join(told)
