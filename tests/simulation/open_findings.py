"""What new seeds have found in the product and is not mended yet.

A run that ends so is told, and fails no sweep: the next one must be seen. `test_open_findings` fails once the seed of a
finding passes, so none stays here after its mend.
"""

import re
from typing import NamedTuple

from tests.simulation.shapes import KIND_SEEDS


class Finding(NamedTuple):
    """kind: first seed of the kind. problem: how the problem of a run begins, a regular expression. why: the cause."""

    seed: int
    kind: int
    problem: str
    why: str


OPEN = (
    Finding(
        5_993_975,
        5_000_000,
        r"Violation: restore: topic \w+ is not found by ",
        "two restores race; a process of the era that lost deletes a topic, and one node notes it before it learns of "
        "the era that won. The restore after the next loss believes that note, and the topic is gone",
    ),
)


def open_finding(seed: int, problem: str) -> Finding | None:
    kind = seed // KIND_SEEDS * KIND_SEEDS
    return next((each for each in OPEN if each.kind == kind and re.match(each.problem, problem)), None)
