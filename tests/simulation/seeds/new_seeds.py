"""Which seeds are new: others each day, each half of a day, and for each commit.

    0 .. 99,999           what tests always run
    100,000 .. 899,999    of a day, 2,000 for 400 days: the first thousand for `make sim`, two hundred for each half of
                          the day, of which the default suite takes some
    900,000 .. 999,999    of a commit

These are numbers within a kind: the first seed of the kind is added. A number names a run for good, so anybody can
repeat what failed; then its seed goes into `seeds.txt`.

What they have found in the product and is not mended yet is OPEN. A run that ends so is told, and fails no sweep: the
next one must be seen. A test fails once the seed of a finding passes, so none stays here after its mend.
"""

import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from tests.simulation.shapes import KIND_SEEDS

FIRST_OF_DAYS, SEEDS_OF_A_DAY, DAYS = 100_000, 2_000, 400
#: `make sim` takes those before it.
FIRST_OF_HALVES, SEEDS_OF_A_HALF = 1_000, 200
FIRST_OF_COMMITS, SEEDS_OF_COMMITS = 900_000, 100_000


class Fresh(Enum):
    """For whom the seeds are new."""

    DAY = "day"
    HALF_DAY = "half-day"
    COMMIT = "commit"


def first_of(fresh: Fresh, count: int) -> int:
    """Among the seeds of a kind. count: how many are taken."""
    match fresh:
        case Fresh.DAY:
            return first_of_day(datetime.now(UTC))
        case Fresh.HALF_DAY:
            return first_of_half_day(datetime.now(UTC))
        case Fresh.COMMIT:
            command = ["git", "rev-parse", "HEAD"]
            commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            return first_of_commit(commit, count)


def first_of_day(now: datetime) -> int:
    return FIRST_OF_DAYS + now.toordinal() % DAYS * SEEDS_OF_A_DAY


def first_of_half_day(now: datetime) -> int:
    return first_of_day(now) + FIRST_OF_HALVES + now.hour // 12 * SEEDS_OF_A_HALF


def first_of_commit(commit: str, count: int) -> int:
    """commit: its hash, hexadecimal."""
    return FIRST_OF_COMMITS + int(commit[:12], 16) % (SEEDS_OF_COMMITS - count + 1)


class Finding(NamedTuple):
    """kind: first seed of the kind. problem: how the problem of a run begins, a regular expression. why: the cause."""

    seed: int
    kind: int
    problem: str
    why: str


OPEN: tuple[Finding, ...] = ()


def open_finding(seed: int, problem: str, findings: Iterable[Finding] = OPEN) -> Finding | None:
    kind = seed // KIND_SEEDS * KIND_SEEDS
    return next((each for each in findings if each.kind == kind and re.match(each.problem, problem)), None)
