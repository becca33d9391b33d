"""The faults of a run: which process is killed at which stage of each job, drawn from a seed. Pure.

A fault does not come at a fixed time. It is injected when the job's visible results (files, manifests, messages) show
that the job is at the fault's stage. A kill counts only if the results that are left afterwards still show this stage.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class Job(StrEnum):
    """A command under `oncelog pipeline`."""

    EXPORT = "export"
    IMPORT_PARQUET = "import parquet"
    IMPORT_CSV = "import csv"
    COMPACT = "compact"


class Victim(StrEnum):
    """The process that is killed with SIGKILL. JOB: all processes of the command at once, with Java and Python
    workers."""

    JOB = "job"
    OWNER = "topic owner"


class Stage(StrEnum):
    """The stages of a job, in the words of the matrix."""

    WRITING = "some files written"
    WRITTEN = "all files written, no manifest"
    NAMED = "manifest stored"
    NOTED = "files recorded, no row published"
    PUBLISHING = "some rows published"
    STAGING = "some rows staged, no record"
    RECORDED = "record stored, rows missing"
    COPYING = "some rows copied"
    WHOLE = "all rows published"


@dataclass(frozen=True, slots=True)
class Fault:
    """share: of the work that must be done. wave: the wave of the source that is published by then. partition: of the
    source, whose owner is killed."""

    victim: Victim
    stage: Stage
    share: float = 0.0
    wave: int = 0
    partition: int = 0

    @property
    def label(self) -> str:
        return f"{self.victim}: {self.stage}"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """faults: in the order in which they are injected."""

    job: Job
    faults: tuple[Fault, ...]

    @property
    def waves(self) -> int:
        return 1 + max(fault.wave for fault in self.faults)

    def of_wave(self, wave: int) -> list[Fault]:
        return [fault for fault in self.faults if fault.wave == wave]


@dataclass(frozen=True, slots=True)
class JobState:
    """The visible results of a job. Export, since its start: finished tasks, whether all files are in place, manifests.
    Other jobs: rows in the target, records in the job's journal, rows staged since its start."""

    tasks: int = 0
    in_place: bool = False
    manifests: int = 0
    rows: int = 0
    records: int = 0
    staged: int = 0


def reached(fault: Fault, state: JobState, total: int) -> bool:
    """Whether the job is at the fault's stage. total: of all the work, tasks or rows."""
    least = max(1, int(fault.share * total))
    match fault.stage:
        case Stage.WRITING:
            return state.tasks >= least and not state.in_place and not state.manifests
        case Stage.WRITTEN:
            return state.in_place and not state.manifests
        case Stage.NAMED:
            return state.manifests > 0
        case Stage.NOTED:
            return state.records > 0 and not state.rows
        case Stage.STAGING:
            return state.staged >= least and not state.records
        case Stage.RECORDED:
            return state.records > 0 and state.rows < total
        case Stage.PUBLISHING | Stage.COPYING:
            return least <= state.rows < total
        case Stage.WHOLE:
            return state.rows == total
        case _:
            assert_never(fault.stage)


def plans(seed: int, partitions: int) -> list[JobPlan]:
    """All plans of a run; the same seed gives the same plans. partitions: of the source."""
    chance = random.Random(seed)
    return [
        JobPlan(Job.EXPORT, _export(chance, partitions)),
        JobPlan(Job.COMPACT, _compact(chance)),
        JobPlan(Job.IMPORT_PARQUET, _import(chance)),
        JobPlan(Job.IMPORT_CSV, _import(chance)),
    ]


def _export(chance: random.Random, partitions: int) -> tuple[Fault, ...]:
    """Faults in each of two waves; their order is drawn, but a fault at the end of the work comes last."""
    first = [
        Fault(Victim.JOB, Stage.WRITING, _share(chance, 0.1, 0.6)),
        Fault(Victim.JOB, Stage.WRITTEN),
        Fault(Victim.OWNER, Stage.WRITING, _share(chance, 0.1, 0.4), partition=chance.randrange(partitions)),
    ]
    then = [
        Fault(Victim.JOB, Stage.WRITTEN, wave=1),
        Fault(Victim.JOB, Stage.WRITING, _share(chance, 0.1, 0.6), wave=1),
    ]
    chance.shuffle(first)
    chance.shuffle(then)
    return (*first, *then, Fault(Victim.JOB, Stage.NAMED, wave=1))


def _import(chance: random.Random) -> tuple[Fault, ...]:
    return (
        Fault(Victim.JOB, Stage.NOTED),
        *_ascending(chance, Stage.PUBLISHING),
        Fault(Victim.JOB, Stage.WHOLE),
    )


def _compact(chance: random.Random) -> tuple[Fault, ...]:
    staging: Sequence[Fault] = (
        Fault(Victim.JOB, Stage.STAGING, _share(chance, 0.1, 0.6)),
        Fault(Victim.OWNER, Stage.STAGING, _share(chance, 0.1, 0.4)),
    )
    return (
        *chance.sample(staging, len(staging)),
        Fault(Victim.JOB, Stage.RECORDED),
        *_ascending(chance, Stage.COPYING)[1:],
        Fault(Victim.JOB, Stage.WHOLE),
    )


def _ascending(chance: random.Random, stage: Stage) -> tuple[Fault, ...]:
    """Published rows stay, so each fault comes at a larger share."""
    return (
        Fault(Victim.JOB, stage, _share(chance, 0.05, 0.2)),
        Fault(Victim.OWNER, stage, _share(chance, 0.3, 0.4)),
        Fault(Victim.JOB, stage, _share(chance, 0.45, 0.6)),
    )


def _share(chance: random.Random, least: float, most: float) -> float:
    return round(chance.uniform(least, most), 2)
