"""The faults of a run: journeys through Spark, each one query with its faults, drawn from a seed. Pure.

A journey reads the source in micro-batches of one size. Each of its faults is injected at another batch, so every fault
has a batch that was published in spite of it. A fault is injected at a point of the sink that a format of Spark
announces (`faulty_sink`), so it never misses by time: a fault that was not injected fails the run.
"""

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Job(StrEnum):
    """What a query does with the flights."""

    COPY = "copy"
    SHUFFLE = "shuffle"
    DISTINCT = "distinct"


class Point(StrEnum):
    """Where a fault is injected: within the rows of a task, within the driver's copy, or after its commit returned."""

    TASK = "task"
    COPYING = "copying"
    COMMITTED = "committed"


class Victim(StrEnum):
    """The processes that are killed with SIGKILL."""

    WORKER = "Python worker"
    EXECUTOR = "executor"
    DRIVER = "driver"
    TARGET_OWNER = "owner of the target"
    SOURCE_OWNER = "owner of a source partition"
    OWNERS = "all owners"


#: The points, in the words of the matrix.
_WHERE = {
    Point.TASK: "mid-batch",
    Point.COPYING: "mid-copy",
    Point.COMMITTED: "between commit and checkpoint",
}
#: The last Arrow batch of a task with a fault: its first claim is stored by then, and even a task of the smallest run,
#: with the four partitions of a shuffle, has one more batch.
_DEEPEST = {"position": 3, "batch": 2, "none": 3}
RECUT = "other partitions in the replay"


@dataclass(frozen=True, slots=True)
class Fault:
    """after: number of Arrow batches of a task, or sends of a copy, that are done when it is injected."""

    victim: Victim
    point: Point
    batch: int
    after: int

    @property
    def label(self) -> str:
        return f"{self.victim}, {_WHERE[self.point]}"

    @property
    def name(self) -> str:
        return f"{self.batch}-{self.victim.name.lower()}-{self.point}"


@dataclass(frozen=True, slots=True)
class Journey:
    """One query. cuts: settings of Spark and of the job that split batches; each start of the driver uses the next."""

    name: str
    job: Job
    mode: str
    faults: tuple[Fault, ...]
    master: str = "local[2,4]"
    protected: bool = True
    recut: bool = False
    cuts: tuple[dict[str, Any], ...] = field(default=({},))

    def cut(self, start: int) -> dict[str, Any]:
        return self.cuts[start % len(self.cuts)]


_Place = tuple[Victim, Point]
_MID = Point.TASK
_COPY: tuple[_Place, ...] = (
    (Victim.WORKER, _MID),
    (Victim.TARGET_OWNER, _MID),
    (Victim.DRIVER, _MID),
    (Victim.OWNERS, _MID),
    (Victim.DRIVER, Point.COMMITTED),
    (Victim.SOURCE_OWNER, _MID),
)
_SHUFFLE: tuple[_Place, ...] = (
    (Victim.WORKER, _MID),
    (Victim.TARGET_OWNER, Point.COPYING),
    (Victim.DRIVER, Point.COPYING),
    (Victim.OWNERS, _MID),
    (Victim.DRIVER, Point.COMMITTED),
    (Victim.SOURCE_OWNER, _MID),
)
_DISTINCT: tuple[_Place, ...] = (
    (Victim.WORKER, _MID),
    (Victim.DRIVER, Point.COMMITTED),
    (Victim.TARGET_OWNER, Point.COPYING),
)
_EXECUTOR: tuple[_Place, ...] = ((Victim.EXECUTOR, _MID),)
_CONTROL: tuple[_Place, ...] = ((Victim.WORKER, _MID), (Victim.DRIVER, Point.COMMITTED))
#: Adaptive execution leaves the four partitions of a shuffle as they are, then joins them into as few as it can.
_AQE = "spark.sql.adaptive"
_WIDE = {f"{_AQE}.streaming.stateless.enabled": "true", f"{_AQE}.coalescePartitions.enabled": "false"}
_NARROW = {
    f"{_AQE}.streaming.stateless.enabled": "true",
    f"{_AQE}.coalescePartitions.enabled": "true",
    f"{_AQE}.coalescePartitions.parallelismFirst": "false",
    f"{_AQE}.advisoryPartitionSizeInBytes": "64m",
}
#: Separate JVMs as executors, each with one task at a time.
EXECUTORS = "local-cluster[2,1,512]"


def journeys(seed: int, batches: int) -> list[Journey]:
    """All journeys of a run: five with the sink's protection, two of them on separate executors, and the control.

    batches: micro-batches of each query, at least 7. The same seed gives the same run.
    """
    chance = random.Random(seed)
    return [
        Journey("copy", Job.COPY, "position", _drawn(chance, "position", _COPY, batches)),
        Journey(
            "shuffle",
            Job.SHUFFLE,
            "batch",
            _drawn(chance, "batch", _SHUFFLE, batches),
            recut=True,
            cuts=({"settings": _WIDE}, {"settings": _NARROW}),
        ),
        Journey(
            "distinct",
            Job.DISTINCT,
            "batch",
            _drawn(chance, "batch", _DISTINCT, batches),
            recut=True,
            cuts=({}, {"coalesce": 1}),
        ),
        Journey("copy on executors", Job.COPY, "position", _drawn(chance, "position", _EXECUTOR, batches), EXECUTORS),
        Journey("shuffle on executors", Job.SHUFFLE, "batch", _drawn(chance, "batch", _EXECUTOR, batches), EXECUTORS),
        Journey("no protection", Job.COPY, "none", _drawn(chance, "none", _CONTROL, batches), protected=False),
    ]


def _drawn(chance: random.Random, mode: str, places: tuple[_Place, ...], batches: int) -> tuple[Fault, ...]:
    """Each fault at a batch of its own, none at the last one, which is published without a fault."""
    drawn = chance.sample(range(batches - 1), len(places))
    deepest = _DEEPEST[mode]
    return tuple(
        Fault(victim, point, batch, chance.randint(deepest - 1, deepest) if point is Point.TASK else 2)
        for (victim, point), batch in sorted(zip(places, drawn, strict=True), key=lambda each: each[1])
    )
