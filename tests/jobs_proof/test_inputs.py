"""The reference of each job and the comparison with it: one message less, more or elsewhere is found, each as such."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tests.jobs_proof.inputs import (
    Files,
    all_files,
    cut,
    exported,
    named_files,
    wanted_of_compaction,
    wanted_of_export,
    wanted_of_import,
    wave_of,
    write_files,
)
from tests.jobs_proof.watching import ExportWatch
from tests.proofs.damages import Damage, each_damage, says
from tests.proofs.flights import Found, Row, Wanted, compare, producer_of

NAME = "landing"
PART_ROWS = 9
COUNT = 2 * PART_ROWS
PARTITIONS = [
    [Row(f"k{partition}{number % 4}", f"{partition}:{number}") for number in range(PART_ROWS)] for partition in range(2)
]
FILES: Files = cut([row for rows in PARTITIONS for row in rows], 5, "csv")
REFERENCES = {
    "export": wanted_of_export(PARTITIONS),
    "import": wanted_of_import(NAME, FILES),
    "compact": wanted_of_compaction(PARTITIONS),
}


def as_found(reference: list[Wanted]) -> list[Found]:
    return [Found(each.producer, each.place, each.key, each.value) for each in reference]


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
@each_damage
def test_each_kind_of_damage_is_counted(
    reference: list[Wanted], damage: Damage, wrong: tuple[int, int, int, bool]
) -> None:
    """An oracle that cannot fail proves nothing."""
    assert says(compare(reference, damage(as_found(reference))), wrong)


def test_a_compaction_keeps_the_last_row_of_each_key_by_partition_and_number() -> None:
    """Not the position where the key came first."""
    assert [each.value for each in REFERENCES["compact"]] == [
        f"{partition}:{number}" for partition in (0, 1) for number in (5, 6, 7, 8)
    ]


def test_waves_are_all_rows_once() -> None:
    """Also where they cannot be halved."""
    numbers = [list(wave_of(PARTITIONS[0], wave)) for wave in range(2)]
    assert numbers[0] + numbers[1] == list(range(PART_ROWS))
    assert all(numbers)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_hold_the_rows_that_the_reference_has(tmp_path: Path, suffix: str) -> None:
    """Also commas and quotes: a line of the file has both."""
    files = cut([Row("k", 'a,"b",c'), Row("l", "d"), Row("m", "e")], 2, suffix)
    write_files(tmp_path, files)
    read = csv.read_csv if suffix == "csv" else parquet.read_table
    found = {path: read(tmp_path / path).to_pylist() for path in files}
    assert found == {path: [{"key": row.key, "line": row.value} for row in rows] for path, rows in files.items()}
    assert [len(rows) for rows in files.values()] == [2, 1]


# --- an export --------------------------------------------------------------------------------------------------------


def write_run(directory: Path, run: str, partition: int, numbers: range) -> str:
    """A data file of a run; its path below the export."""
    path = directory / f"run={run}/topic=t%2Fn%2Fin/date=2013-01-01/part-{partition}-{numbers.start}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [PARTITIONS[partition][number] for number in numbers]
    columns = {
        "key": [row.key.encode() for row in rows],
        "value": [row.value.encode() for row in rows],
        "partition": pa.array([partition] * len(rows), pa.int32()),
        "index": list(numbers),
        "producer_name": [producer_of(partition)] * len(rows),
        "sequence_id": list(numbers),
    }
    parquet.write_table(pa.table(columns), path)
    return str(path.relative_to(directory))


def write_manifest(directory: Path, number: int, files: dict[str, int]) -> None:
    """files: {path: the number of its first message}."""
    told = [{"path": path, "topic": path.rpartition("part-")[2][0], "first": first} for path, first in files.items()]
    place = directory / "_manifests"
    place.mkdir(exist_ok=True)
    (place / f"{number:09d}.json").write_text(json.dumps({"files": told}))


def test_files_that_manifests_name_hold_each_message_once_and_all_files_more(tmp_path: Path) -> None:
    """A run that was killed before its manifest has left its files: counting them would double its messages."""
    half = PART_ROWS // 2
    first = {write_run(tmp_path, "000000-a", partition, range(half)): 0 for partition in (0, 1)}
    write_run(tmp_path, "000001-killed", 0, range(half, PART_ROWS))
    then = {write_run(tmp_path, "000001-b", partition, range(half, PART_ROWS)): half for partition in (1, 0)}
    write_manifest(tmp_path, 0, first)
    write_manifest(tmp_path, 1, then)
    rows = list(exported(named_files(tmp_path)))
    assert compare(REFERENCES["export"], [found for _, _, found in rows]).perfect
    assert [(partition, number) for partition, number, _ in rows][:half] == [(0, number) for number in range(half)]
    without = compare(REFERENCES["export"], [found for _, _, found in exported(all_files(tmp_path))])
    assert without.duplicated == PART_ROWS - half


def test_a_watch_sees_the_progress_of_a_start(tmp_path: Path) -> None:
    """Finished tasks, then all files, then the manifest; nothing of earlier starts."""
    write_manifest(tmp_path, 0, {})
    (tmp_path / "run=000001-killed/_temporary/0/task_1").mkdir(parents=True)
    watch = ExportWatch(tmp_path)
    watch.begin()
    assert watch.observe() == (0, False, 0)
    tasks = tmp_path / "run=000001-b/_temporary/0"
    (tasks / "task_1").mkdir(parents=True)
    (tasks / "_temporary").mkdir()
    assert watch.observe() == (1, False, 0)
    (tasks.parent.parent / "_SUCCESS").touch()
    assert watch.observe() == (1, True, 0)
    write_manifest(tmp_path, 1, {})
    assert watch.observe() == (1, True, 1)


def test_a_watch_may_begin_before_the_directory_exists(tmp_path: Path) -> None:
    """The first start makes it."""
    watch = ExportWatch(tmp_path / "export")
    watch.begin()
    assert watch.observe() == (0, False, 0)
