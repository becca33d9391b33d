"""Whom a run kills, and amid what: the strikes on each job, drawn from a seed, and how their moment is known. Pure.

A strike never comes at a time. It comes when what a job leaves for everybody to see - files, manifests, messages -
says that it is amid something; and a kill counts only if what is there once everything is dead still says so.
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
    """Who is killed with SIGKILL. JOB: every process of the command at once, Java and Python workers, too."""

    JOB = "job"
    OWNER = "topic owner"


class Moment(StrEnum):
    """What there is of the work, in the words of the matrix."""

    WRITING = "some files written"
    WRITTEN = "all files there, no manifest"
    NAMED = "manifest there"
    NOTED = "files noted, no row there"
    PUBLISHING = "some rows there"
    STAGING = "some rows staged, no winners"
    RECORDED = "winners noted, rows missing"
    COPYING = "some rows copied"
    WHOLE = "all rows there"


@dataclass(frozen=True, slots=True)
class Strike:
    """share: of the work, that must be there. wave: which share of the source is published by then. part: of the
    source, whose owner dies."""

    victim: Victim
    moment: Moment
    share: float = 0.0
    wave: int = 0
    part: int = 0

    @property
    def fault(self) -> str:
        return f"{self.victim}: {self.moment}"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """strikes: in the order in which they come."""

    job: Job
    strikes: tuple[Strike, ...]

    @property
    def waves(self) -> int:
        return 1 + max(strike.wave for strike in self.strikes)

    def of_wave(self, wave: int) -> list[Strike]:
        return [strike for strike in self.strikes if strike.wave == wave]


@dataclass(frozen=True, slots=True)
class Sight:
    """What is there of a job's work. Of an export since its start: tasks that ended, whether all files are in place,
    manifests. Else: rows of the target, records of the job's journal, rows staged since its start."""

    tasks: int = 0
    in_place: bool = False
    manifests: int = 0
    rows: int = 0
    records: int = 0
    staged: int = 0


def amid(strike: Strike, sight: Sight, total: int) -> bool:
    """Whether this is the moment. total: of all the work, tasks or rows."""
    least = max(1, int(strike.share * total))
    match strike.moment:
        case Moment.WRITING:
            return sight.tasks >= least and not sight.in_place and not sight.manifests
        case Moment.WRITTEN:
            return sight.in_place and not sight.manifests
        case Moment.NAMED:
            return sight.manifests > 0
        case Moment.NOTED:
            return sight.records > 0 and not sight.rows
        case Moment.STAGING:
            return sight.staged >= least and not sight.records
        case Moment.RECORDED:
            return sight.records > 0 and sight.rows < total
        case Moment.PUBLISHING | Moment.COPYING:
            return least <= sight.rows < total
        case Moment.WHOLE:
            return sight.rows == total
        case _:
            assert_never(strike.moment)


def plans(seed: int, parts: int) -> list[JobPlan]:
    """All of a run; the same seed gives the same one. parts: of the source."""
    chance = random.Random(seed)
    return [
        JobPlan(Job.EXPORT, _export(chance, parts)),
        JobPlan(Job.COMPACT, _compact(chance)),
        JobPlan(Job.IMPORT_PARQUET, _import(chance)),
        JobPlan(Job.IMPORT_CSV, _import(chance)),
    ]


def _export(chance: random.Random, parts: int) -> tuple[Strike, ...]:
    """Killed in each of two waves; the order within one is drawn, but what comes last comes last."""
    first = [
        Strike(Victim.JOB, Moment.WRITING, _share(chance, 0.1, 0.6)),
        Strike(Victim.JOB, Moment.WRITTEN),
        Strike(Victim.OWNER, Moment.WRITING, _share(chance, 0.1, 0.4), part=chance.randrange(parts)),
    ]
    then = [
        Strike(Victim.JOB, Moment.WRITTEN, wave=1),
        Strike(Victim.JOB, Moment.WRITING, _share(chance, 0.1, 0.6), wave=1),
    ]
    chance.shuffle(first)
    chance.shuffle(then)
    return (*first, *then, Strike(Victim.JOB, Moment.NAMED, wave=1))


def _import(chance: random.Random) -> tuple[Strike, ...]:
    return (
        Strike(Victim.JOB, Moment.NOTED),
        *_ascending(chance, Moment.PUBLISHING),
        Strike(Victim.JOB, Moment.WHOLE),
    )


def _compact(chance: random.Random) -> tuple[Strike, ...]:
    staging: Sequence[Strike] = (
        Strike(Victim.JOB, Moment.STAGING, _share(chance, 0.1, 0.6)),
        Strike(Victim.OWNER, Moment.STAGING, _share(chance, 0.1, 0.4)),
    )
    return (
        *chance.sample(staging, len(staging)),
        Strike(Victim.JOB, Moment.RECORDED),
        *_ascending(chance, Moment.COPYING)[1:],
        Strike(Victim.JOB, Moment.WHOLE),
    )


def _ascending(chance: random.Random, moment: Moment) -> tuple[Strike, ...]:
    """What is there stays there, so each comes at a larger share."""
    return (
        Strike(Victim.JOB, moment, _share(chance, 0.05, 0.2)),
        Strike(Victim.OWNER, moment, _share(chance, 0.3, 0.4)),
        Strike(Victim.JOB, moment, _share(chance, 0.45, 0.6)),
    )


def _share(chance: random.Random, least: float, most: float) -> float:
    return round(chance.uniform(least, most), 2)
