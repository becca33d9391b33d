"""The expected result of every job, in plain Python: one process, no log, no Spark. Pure, except for the checkpoint."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.proofs.flights import PARTITIONS, Row, Wanted, partition_of
from tests.spark_proof.plan import Job

SOURCE = "public/default/proof-in"
PREFIX = "proof"
#: The departure of a cancelled flight, which no job keeps.
CANCELLED = "NA"
_MONTH, _DAY, _DEPARTED, _CARRIER, _FLIGHT, _ORIGIN, _DESTINATION = 1, 2, 3, 9, 10, 12, 13


def partition_topic(partition: int) -> str:
    return partition_of(SOURCE, partition)


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
