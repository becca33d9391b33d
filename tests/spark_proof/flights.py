"""The input, and the expected result of every job, in plain Python: one process, no log, no Spark. Pure, except for the
file.

A row is one line of the file, with its number before it. Its key is the aircraft; rows of a key are in one part.
"""

import json
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.spark_proof.plan import Job

PARTITIONS = 3
SOURCE = "public/default/proof-in"
PREFIX = "proof"
#: The departure of a cancelled flight, which no job keeps.
CANCELLED = "NA"
_MONTH, _DAY, _DEPARTED, _CARRIER, _FLIGHT, _TAIL, _ORIGIN, _DESTINATION = 1, 2, 3, 9, 10, 11, 12, 13


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the file as it is published."""

    key: str
    value: str

    @property
    def columns(self) -> list[str]:
        """Of the line, without its number."""
        return self.value.split(",")[1:]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A message that must be in the target, once. order: messages of one order ascend by `place` there.

    producer: under which name; "": any.
    """

    producer: str
    key: str
    value: str
    order: str
    place: int


def read_rows(path: Path, lines: int) -> list[list[Row]]:
    """The first lines behind the header, by partition of the source."""
    partitions: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    with path.open() as file:
        next(file)
        for number, line in zip(range(lines), file, strict=False):
            key = line.split(",")[_TAIL]
            partitions[zlib.crc32(key.encode()) % PARTITIONS].append(Row(key, f"{number},{line.rstrip()}"))
    return partitions


def partition_topic(partition: int) -> str:
    return f"{SOURCE}-partition-{partition}"


def wanted(job: Job, partitions: Sequence[Sequence[Row]], batches: Sequence[Mapping[str, int]]) -> list[Wanted]:
    """What the target must hold. batches: where each micro-batch ended, {topic of a partition: number of the next row}.

    A copy keeps the order of each part; of the others the batches keep theirs.
    """
    if job is Job.DISTINCT:
        return _days(partitions, batches)
    found = []
    for partition, rows in enumerate(partitions):
        topic = partition_topic(partition)
        ends = [ends[topic] for ends in batches]
        for index, row in enumerate(rows):
            columns = row.columns
            if columns[_DEPARTED] != CANCELLED:
                value = (
                    f"{row.value.partition(',')[0]} {columns[_CARRIER]}{columns[_FLIGHT]} "
                    f"{columns[_ORIGIN]}-{columns[_DESTINATION]}"
                )
                name = f"{PREFIX}/{topic}"
                found.append(
                    Wanted(name, row.key, value, name, index)
                    if job is Job.COPY
                    else Wanted("", row.key, value, "batches", bisect_right(ends, index))
                )
    return found


def _days(partitions: Sequence[Sequence[Row]], batches: Sequence[Mapping[str, int]]) -> list[Wanted]:
    """Each day on which an aircraft flew, with the first batch that contains it."""
    begins = dict.fromkeys(map(partition_topic, range(PARTITIONS)), 0)
    found: dict[tuple[str, str], Wanted] = {}
    for batch, ends in enumerate(batches):
        for partition, rows in enumerate(partitions):
            topic = partition_topic(partition)
            for row in rows[begins[topic] : ends[topic]]:
                columns = row.columns
                if columns[_DEPARTED] != CANCELLED:
                    day = f"{columns[_MONTH]}-{columns[_DAY]}"
                    found.setdefault((row.key, day), Wanted("", row.key, day, "batches", batch))
            begins[topic] = ends[topic]
    return list(found.values())


def batch_ends(checkpoint: Path) -> list[dict[str, int]]:
    """Where each micro-batch ended, as Spark's own checkpoint keeps it."""
    found = []
    for path in sorted((checkpoint / "offsets").iterdir(), key=lambda path: path.name.zfill(9)):
        if path.name.isdigit():
            told = json.loads(path.read_text().splitlines()[-1])["topics"]
            found.append({topic: int(mark["next"]) for topic, mark in told.items()})
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """A message of the target, in the order of the log."""

    producer: str
    sequence_id: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of messages. foreign: messages that were not expected."""

    wanted: int
    stored: int
    lost: int
    duplicated: int
    foreign: int
    out_of_order: int

    @property
    def perfect(self) -> bool:
        return not (self.lost or self.duplicated or self.foreign or self.out_of_order)


def compare(reference: Iterable[Wanted], found: Sequence[Found]) -> Verdict:
    """Compare message by message: each once, and those of one order in sequence."""
    places: dict[tuple[str, str, str], Wanted] = {}
    for each in reference:
        places[each.producer, each.key, each.value] = each
    names = any(each.producer for each in places.values())
    counts: Counter[tuple[str, str, str]] = Counter()
    furthest: dict[str, int] = {}
    foreign = out_of_order = 0
    for message in found:
        identity = (message.producer if names else "", message.key, message.value)
        known = places.get(identity)
        if known is None:
            foreign += 1
            continue
        counts[identity] += 1
        if counts[identity] == 1:
            out_of_order += known.place < furthest.get(known.order, -1)
            furthest[known.order] = max(known.place, furthest.get(known.order, -1))
    doubled = sum(count - 1 for count in counts.values())
    return Verdict(len(places), len(found), len(places) - len(counts), doubled, foreign, out_of_order)
