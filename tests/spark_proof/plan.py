"""What is struck, where and when: journeys through Spark, each one query with its faults, drawn from a seed. Pure.

A journey reads the source in micro-batches of one size and meets each of its strikes at another batch, so that what it
publishes of a batch is known to have gone through that fault. A strike comes at a point of the sink that a format of
Spark announces (`striking_sink`), so it never misses by time: one that was not met fails the run.
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
    """Where a strike comes: amid the rows of a task, amid the driver's copy, or once its commit has returned."""

    TASK = "task"
    COPYING = "copying"
    COMMITTED = "committed"


class Victim(StrEnum):
    """Who is killed with SIGKILL."""

    WORKER = "Python worker"
    EXECUTOR = "executor"
    DRIVER = "driver"
    TARGET_OWNER = "owner of the target"
    SOURCE_OWNER = "owner of a source part"
    OWNERS = "all owners"


#: What the sink is told where: the words of the matrix.
_WHERE = {
    Point.TASK: "mid-batch",
    Point.COPYING: "amid the copy",
    Point.COMMITTED: "between commit and checkpoint",
}
#: The last Arrow batch of a task that may be struck: its first claim is through by then, and a task of the smallest run
#: that the four partitions of a shuffle leave still has one more.
_DEEPEST = {"position": 3, "batch": 2, "none": 3}
RECUT = "other partitions in the replay"


@dataclass(frozen=True, slots=True)
class Strike:
    """after: so many Arrow batches of a task, or sends of a copy, are through when it comes."""

    victim: Victim
    point: Point
    batch: int
    after: int

    @property
    def fault(self) -> str:
        return f"{self.victim}, {_WHERE[self.point]}"

    @property
    def name(self) -> str:
        return f"{self.batch}-{self.victim.name.lower()}-{self.point}"


@dataclass(frozen=True, slots=True)
class Journey:
    """One query. cuts: settings of Spark and of the job, for one start of the driver after the other, in turn."""

    name: str
    job: Job
    mode: str
    strikes: tuple[Strike, ...]
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
    """All of a run: five under protection, two modes on executors of their own, and the control.

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


def _drawn(chance: random.Random, mode: str, places: tuple[_Place, ...], batches: int) -> tuple[Strike, ...]:
    """Each at a batch of its own, the last one free: what comes behind the last strike is published in peace."""
    drawn = chance.sample(range(batches - 1), len(places))
    deepest = _DEEPEST[mode]
    return tuple(
        Strike(victim, point, batch, chance.randint(deepest - 1, deepest) if point is Point.TASK else 2)
        for (victim, point), batch in sorted(zip(places, drawn, strict=True), key=lambda each: each[1])
    )
