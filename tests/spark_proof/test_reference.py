"""The oracle of the proof: it finds what is lost, doubled, foreign and out of order."""

import json
from pathlib import Path

import pytest

from tests.proofs.damages import Damage, each_damage, says
from tests.proofs.flights import PARTITIONS, Found, Row, Verdict, compare, read_rows
from tests.spark_proof.flights import CANCELLED, batch_ends, partition_topic, wanted
from tests.spark_proof.plan import Job

HEADING = "year,month,day,dep_time,s,d,a,sa,ad,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time"
AIRCRAFT = ("N1", "N2", "N3", "N4")
COUNT = 40


def line(number: int) -> str:
    departed = CANCELLED if number % 10 == 9 else "517"
    aircraft, day = AIRCRAFT[number % 4], 1 + number // 8
    return f"2013,1,{day},{departed},515,2,830,819,11,UA,{number},{aircraft},EWR,IAH,227,1400,5,15,t"


@pytest.fixture
def partitions(tmp_path: Path) -> list[list[Row]]:
    path = tmp_path / "flights.csv"
    path.write_text("\n".join([HEADING, *map(line, range(COUNT + 5))]) + "\n")
    return read_rows(path, COUNT)


def ends_of(partitions: list[list[Row]], *shares: float) -> list[dict[str, int]]:
    return [{partition_topic(n): int(len(rows) * share) for n, rows in enumerate(partitions)} for share in shares]


def published(partitions: list[list[Row]], job: Job) -> list[Found]:
    """As a faultless run leaves it."""
    reference = wanted(job, partitions, ends_of(partitions, 0.5, 1.0))
    if job is not Job.COPY:
        reference.sort(key=lambda each: each.place)
    return [Found(each.producer or "proof", number, each.key, each.value) for number, each in enumerate(reference)]


def checked(partitions: list[list[Row]], job: Job, found: list[Found]) -> Verdict:
    return compare(wanted(job, partitions, ends_of(partitions, 0.5, 1.0)), found)


def test_rows_are_lines_by_aircraft(partitions: list[list[Row]]) -> None:
    """Those of an aircraft are in one partition, in the order of the file, and no line beyond the count is read."""
    assert len(partitions) == PARTITIONS
    assert sorted(int(row.value.partition(",")[0]) for rows in partitions for row in rows) == list(range(COUNT))
    for rows in partitions:
        numbers = [int(row.value.partition(",")[0]) for row in rows]
        assert numbers == sorted(numbers)
    assert all(row.key == AIRCRAFT[int(row.value.partition(",")[0]) % 4] for rows in partitions for row in rows)


@pytest.mark.parametrize("job", Job)
@each_damage
def test_each_kind_of_damage_is_counted(
    partitions: list[list[Row]], job: Job, damage: Damage, wrong: tuple[int, int, int, bool]
) -> None:
    """An oracle that cannot fail proves nothing."""
    assert says(checked(partitions, job, damage(published(partitions, job))), wrong)


def test_a_message_under_another_producer_is_foreign(partitions: list[list[Row]]) -> None:
    """Positions are the identity of a copy, and the name contains the partition."""
    found = published(partitions, Job.COPY)
    moved = [Found("proof/elsewhere", found[0].sequence_id, found[0].key, found[0].value), *found[1:]]
    assert (checked(partitions, Job.COPY, moved).foreign, checked(partitions, Job.COPY, moved).lost) == (1, 1)


def test_each_day_is_expected_once_in_its_first_batch(partitions: list[list[Row]]) -> None:
    """A day that continues in the next batch is known by then; cancelled flights give none."""
    found = wanted(Job.DISTINCT, partitions, ends_of(partitions, 0.5, 1.0))
    flown = {(n % 4, 1 + n // 8) for n in range(COUNT) if n % 10 != 9}
    assert {(each.key, each.value) for each in found} == {(AIRCRAFT[key], f"1-{day}") for key, day in flown}
    assert {each.place for each in found} == {0, 1}
    once = wanted(Job.DISTINCT, partitions, ends_of(partitions, 1.0))
    assert [(each.key, each.value) for each in once] != []
    assert {(each.key, each.value) for each in once} == {(each.key, each.value) for each in found}
    assert wanted(Job.DISTINCT, partitions, ends_of(partitions, 1.0, 1.0)) == once


def test_batches_end_at_the_offsets_of_the_checkpoint(tmp_path: Path) -> None:
    """In the order of their numbers, not of their names."""
    (tmp_path / "offsets").mkdir()
    for batch in range(11):
        told = json.dumps({"format": 1, "topics": {"public/default/a": {"topic_id": "x", "next": 10 * batch + 10}}})
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{told}")
    (tmp_path / "offsets" / ".9.crc").write_bytes(b"")
    assert [ends["public/default/a"] for ends in batch_ends(tmp_path)] == [10 * n + 10 for n in range(11)]
