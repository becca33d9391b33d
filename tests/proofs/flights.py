"""The rows that the proofs publish, and the oracle: messages compared with those that are wanted. Pure, except for the
file.

A row is one line of the file, with its number before it. Its key is the aircraft; rows of a key are in one part.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PARTITIONS = 3
_TAIL = 11


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


def partition_of(source: str, partition: int) -> str:
    """The topic of a partition."""
    return f"{source}-partition-{partition}"


def producer_of(partition: int) -> str:
    return f"importer-{partition}"


def read_rows(path: Path, lines: int) -> list[list[Row]]:
    """The first lines behind the header, by partition of the source."""
    partitions: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    with path.open() as file:
        next(file)
        for number, line in zip(range(lines), file, strict=False):
            key = line.split(",")[_TAIL]
            partitions[zlib.crc32(key.encode()) % PARTITIONS].append(Row(key, f"{number},{line.rstrip()}"))
    return partitions


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
