"""Reading an export: only the files that its manifests name. Verifying that these files have not changed.

from oncelog_spark.export.reading import read_export
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
from oncelog_spark.export.manifest import DataFile, ExportManifest
from oncelog_spark.export.options import export_location
from oncelog_spark.export.run import VerifiedFile
from oncelog_spark.export.store import ExportStore, store_of
from oncelog_spark.source.reader import SCHEMA

COLUMNS = [*SCHEMA.names, "date"]
_IN_PATHS = {"topic", "date"}
FILE_SCHEMA = StructType(
    [*(each for each in SCHEMA.fields if each.name not in _IN_PATHS), StructField("topic", StringType()),
     StructField("date", DateType())]
)  # fmt: skip
#: Times in a common format, and unchanged, even where a producer's clock was wrong.
_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
#: Files that are verified together. Where this fails, each of them is verified on its own.
_CHECKED_AT_ONCE = 64
#: xxhash64 passes over nulls, so the files of before `producer_id` have the checksums that they had.
_CHECKSUM = (
    "hex(bit_xor(xxhash64(key, value, topic, partition, topic_id, ledger_id, entry_id, batch_index, index, "
    "publish_time, event_time, producer_name, sequence_id, map_entries(properties), date, producer_id)))"
)


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """problems: one sentence each; empty: files and manifests agree."""

    manifests: int
    files: int
    rows: int
    size_bytes: int
    topics: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_export(spark: SparkSession, directory: str) -> DataFrame:
    """Every exported message once: the source's columns, and `date`. Raises InvalidArgument, CorruptEntry, LogHole."""
    location = export_location(directory)
    manifests = ExportStore(store_of(location, spark)).manifests()
    files = [f"{location.uri}/{file.path}" for manifest in manifests for file in manifest.files]
    return _frame(spark, location.uri, files).select(*COLUMNS)


def verify_export(spark: SparkSession, directory: str) -> VerifiedExport:
    """Read the whole export, and compare each file with its manifest. Raises CorruptEntry, LogHole where manifests
    are damaged or missing."""
    location = export_location(directory)
    exported = ExportStore(store_of(location, spark))
    manifests = exported.manifests()
    problems = list(_chain_problems(manifests))
    sizes: dict[str, int] = {}
    for manifest in manifests:
        if manifest.files:
            sizes |= exported.sizes(manifest.run)
    named = {file.path: file for manifest in manifests for file in manifest.files}
    problems += [f"{path} is missing" for path in sorted(set(named) - set(sizes))]
    problems += [f"{path} is in the directory of a run, but not in its manifest" for path in
                 sorted(set(sizes) - set(named))]  # fmt: skip
    present = sorted(set(named) & set(sizes))
    with session_settings(spark):
        for at in range(0, len(present), _CHECKED_AT_ONCE):
            problems += _file_problems(
                spark, location.uri, [named[path] for path in present[at : at + _CHECKED_AT_ONCE]], sizes
            )
    reached: dict[str, int] = {topic: r.next for topic, r in manifests[-1].reached.items()} if manifests else {}
    rows = sum(manifest.rows for manifest in manifests)
    size_bytes = sum(manifest.size_bytes for manifest in manifests)
    return VerifiedExport(len(manifests), len(named), rows, size_bytes, reached, tuple(problems))


def read_back(spark: SparkSession, uri: str, sizes: Mapping[str, int]) -> list[VerifiedFile]:
    """The contents of files, by path. Call it within `session_settings`. sizes: {path: bytes}."""
    if not sizes:
        return []
    frame = _frame(spark, uri, [f"{uri}/{path}" for path in sorted(sizes)])
    # The topic is in the path. Of each column Spark keeps a number: a text would make it sort all rows.
    grouped = frame.groupBy(f.col("_metadata.file_path").alias("path"), "topic").agg(
        f.min("partition").alias("low"),
        f.max("partition").alias("high"),
        f.count("*").alias("rows"),
        f.min("index").alias("first"),
        f.max("index").alias("last"),
        # In two halves, which cannot overflow and cost less than decimals.
        f.expr("sum(shiftright(index, 32))").alias("high_sum"),
        f.expr("sum(index & 4294967295L)").alias("low_sum"),
        f.expr(_CHECKSUM).alias("checksum"),
    )
    found = []
    for row in grouped.collect():
        path = _relative(row["path"], sizes)
        names = dict.fromkeys(_partition_name(row["topic"], partition) for partition in (row["low"], row["high"]))
        topic = " and ".join(names)
        file = DataFile(path, topic, sizes[path], row["rows"], row["first"], row["last"], row["checksum"])
        found.append(VerifiedFile(file, (row["high_sum"] << 32) + row["low_sum"]))
    return sorted(found, key=lambda each: each.file.path)


def _partition_name(topic: str, partition: int) -> str:
    return topic if partition < 0 else f"{topic}-partition-{partition}"


@contextmanager
def session_settings(spark: SparkSession, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set what reading and writing the files needs, and `more`; restore the session's settings afterwards."""
    settings = _SETTINGS | dict(more or {})
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def _frame(spark: SparkSession, uri: str, files: Sequence[str]) -> DataFrame:
    if not files:
        return spark.createDataFrame([], FILE_SCHEMA)
    return spark.read.schema(FILE_SCHEMA).option("basePath", uri).parquet(*files)


def _relative(uri: str, paths: Mapping[str, int]) -> str:
    """The path among `paths` that Spark's URI of a file stands for."""
    whole = unquote(uri)
    at = whole.find("/run=")
    while at >= 0:
        if whole[at + 1 :] in paths:
            return whole[at + 1 :]
        at = whole.find("/run=", at + 1)
    raise CorruptEntry(f"Spark returned a file that was not listed: {uri}")


def _chain_problems(manifests: Sequence[ExportManifest]) -> Iterator[str]:
    """Each manifest must continue where the ones before ended, and its files must hold its ranges."""
    reached: dict[str, tuple[str, int]] = {}
    for manifest in manifests:
        for each in manifest.ranges:
            topic_id, following = reached.get(each.topic, (each.topic_id, each.first))
            if (topic_id, following) != (each.topic_id, each.first):
                yield f"manifest {manifest.number}: {each.topic} continues at {each.first} instead of {following}"
            rows = sum(file.rows for file in manifest.files if file.topic == each.topic)
            if rows != each.rows:
                yield f"manifest {manifest.number}: its files have {rows} rows of {each.topic}, its range {each.rows}"
            reached[each.topic] = (each.topic_id, each.end)


def _file_problems(spark: SparkSession, uri: str, files: Sequence[DataFile], sizes: Mapping[str, int]) -> list[str]:
    """The problems of these files; each file is read on its own where they cannot be read together."""
    try:
        found = {
            each.file.path: each.file for each in read_back(spark, uri, {file.path: sizes[file.path] for file in files})
        }
    except PySparkException as error:
        if len(files) == 1:
            return [f"{files[0].path} cannot be read: {str(error).splitlines()[0][:200]}"]
        halves = files[: len(files) // 2], files[len(files) // 2 :]
        return functools.reduce(operator.iadd, (_file_problems(spark, uri, half, sizes) for half in halves), [])
    changed = [file for file in files if found.get(file.path) != file]
    return [
        f"{each.path} has changed since it was written: {_differences(each, found.get(each.path))}" for each in changed
    ]


def _differences(named: DataFile, found: DataFile | None) -> str:
    if found is None:
        return "it has no rows"
    names = ("size_bytes", "rows", "first", "last", "checksum", "topic")
    changes = [f"{name} {getattr(found, name)}, not {getattr(named, name)}" for name in names
            if getattr(found, name) != getattr(named, name)]  # fmt: skip
    return "; ".join(changes)
