"""The input of the jobs, and their expected results, in plain Python: one process, no log, no Spark.

Messages are lines of the file, made long so that publishing them takes a while. Their key is the aircraft and the day;
the last flight of that day is what a compaction keeps. Rows of files are the same lines, in files of two sizes.
"""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tests.proofs.flights import Found, Row, Wanted, partition_of, producer_of, read_rows

SOURCE = "public/default/jobs-in"
#: Bytes of a value; it begins with the line.
VALUE_BYTES = 1000
WAVES = 2
_MONTH, _DAY = 1, 2

#: {path below the import's directory: its rows}
Files = dict[str, list[Row]]


def messages_of(path: Path, lines: int) -> list[list[Row]]:
    """By partition of the source."""
    return [[_long(row) for row in rows] for rows in read_rows(path, lines)]


def _long(row: Row) -> Row:
    columns = row.columns
    filling = hashlib.shake_128(row.value.encode()).hexdigest(VALUE_BYTES // 2)
    return Row(f"{row.key} {columns[_MONTH]}-{columns[_DAY]}", f"{row.value} {filling}"[:VALUE_BYTES])


def partition_topic(partition: int) -> str:
    return partition_of(SOURCE, partition)


def wave_of(rows: Sequence[Row], wave: int) -> range:
    """Numbers of the rows that are published in this wave."""
    return range(wave * len(rows) // WAVES, (wave + 1) * len(rows) // WAVES)


# --- files of an import -----------------------------------------------------------------------------------------------


def cut(rows: Sequence[Row], rows_per_file: int, suffix: str) -> Files:
    """Files in two directories, alternating."""
    starts = range(0, len(rows), rows_per_file)
    return {
        f"{'ab'[number % 2]}/{number:04d}.{suffix}": list(rows[start : start + rows_per_file])
        for number, start in enumerate(starts)
    }


def write_files(directory: Path, files: Files) -> None:
    for path, rows in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".parquet":
            columns = {"key": [row.key for row in rows], "line": [row.value for row in rows]}
            parquet.write_table(pa.table(columns), place)
        else:
            with place.open("w", newline="") as file:
                csv.writer(file).writerows([("key", "line"), *((row.key, row.value) for row in rows)])


# --- expected results -------------------------------------------------------------------------------------------------


def wanted_of_export(partitions: Sequence[Sequence[Row]]) -> list[Wanted]:
    """Every message, in the order of its partition."""
    return [
        Wanted(producer_of(partition), row.key, row.value, partition_topic(partition), number)
        for partition, rows in enumerate(partitions)
        for number, row in enumerate(rows)
    ]


def wanted_of_import(name: str, files: Files) -> list[Wanted]:
    """Every row, in the order of its file, under the file's own name."""
    return [
        Wanted(f"{name}/{path}", row.key, row.value, path, number)
        for path, rows in files.items()
        for number, row in enumerate(rows)
    ]


def wanted_of_compaction(partitions: Sequence[Sequence[Row]]) -> list[Wanted]:
    """The last row of each key, in the order of the log: by partition, then by number."""
    last: dict[str, Row] = {}
    for rows in partitions:
        for row in rows:
            last.pop(row.key, None)
            last[row.key] = row
    return [Wanted("", row.key, row.value, "log", place) for place, row in enumerate(last.values())]


# --- contents of an export --------------------------------------------------------------------------------------------


def named_files(directory: Path) -> list[Path]:
    """The messages in files that manifests name, in order of the manifests; within one by partition and number."""
    found = []
    for path in sorted((directory / "_manifests").iterdir()):
        files = json.loads(path.read_text())["files"]
        found += [directory / each["path"] for each in sorted(files, key=lambda each: (each["topic"], each["first"]))]
    return found


def all_files(directory: Path) -> list[Path]:
    """The messages in all files, without regard to manifests."""
    return sorted(directory.glob("run=*/topic=*/**/*.parquet"))


def exported(files: Sequence[Path]) -> Iterator[tuple[int, int, Found]]:
    """Partition, number and content of each message, in file order."""
    names = ("partition", "index", "producer_name", "sequence_id", "key", "value")
    for path in files:
        with parquet.ParquetFile(path) as file:
            columns = [file.read(list(names)).column(name).to_pylist() for name in names]
        for partition, number, producer, sequence_id, key, value in zip(*columns, strict=True):
            yield partition, number, Found(producer or "", sequence_id, (key or b"").decode(), value.decode())
