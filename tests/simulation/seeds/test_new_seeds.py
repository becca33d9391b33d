"""Seeds that nobody chose: which ones, and how a failure among them is told."""

from datetime import UTC, datetime, timedelta
from typing import Self

import pytest

from tests.simulation import __main__ as command
from tests.simulation.run import Outcome, run
from tests.simulation.seeds.new_seeds import (
    FIRST_OF_COMMITS,
    FIRST_OF_DAYS,
    OPEN,
    Finding,
    Fresh,
    first_of,
    first_of_commit,
    first_of_day,
    first_of_half_day,
    open_finding,
)
from tests.simulation.shapes import KIND_SEEDS, KINDS

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_seeds_of_days_and_of_halves_of_days_are_others_for_a_year() -> None:
    """`make sim` takes a thousand at most, the default suite two hundred."""
    halves = [NOON + timedelta(hours=12 * number) for number in range(800)]
    taken = [range(first, first + 200) for first in map(first_of_half_day, halves)]
    taken += [range(first, first + 1_000) for first in map(first_of_day, halves[::2])]
    every = [seed for seeds in taken for seed in seeds]
    assert len(set(every)) == len(every)
    assert min(every) >= FIRST_OF_DAYS
    assert max(every) < FIRST_OF_COMMITS
    assert first_of_half_day(NOON) == first_of_half_day(NOON + timedelta(hours=11))


@pytest.mark.parametrize(("commit", "first"), [("0" * 40, 900_000), (f"{99_500:012x}{'f' * 28}", 999_500)])
def test_seeds_of_a_commit_are_of_its_kind_alone(commit: str, first: int) -> None:
    """The last one that has 500 seeds behind it; with one more, the first one again."""
    assert first_of_commit(commit, 500) == first
    assert first + 500 <= KIND_SEEDS
    assert first_of_commit(f"{99_501:012x}", 500) == FIRST_OF_COMMITS


def test_commit_is_that_of_the_tree() -> None:
    assert FIRST_OF_COMMITS <= first_of(Fresh.COMMIT, 500) <= KIND_SEEDS - 500


def test_failing_seed_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The suite prints what a part has written if it fails, and its last line if it passes."""
    broken = KINDS[2] + 7

    class InThisProcess:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def imap_unordered(self, _: object, seeds: list[int], *, chunksize: int) -> list[Outcome]:
            return [Outcome(one, 0, 1, 1, {}, "Violation: x" if one == broken else None) for one in seeds]

    class Context:
        def Pool(self, _: int) -> InThisProcess:  # noqa: N802
            return InThisProcess()

    monkeypatch.setattr(command, "get_context", lambda _: Context())
    monkeypatch.setattr(command, "shrunk_report", lambda seed: f"the least of {seed}")
    assert command.sweep(5, 3, processes=1, show_counts=False) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"seed {broken}: Violation: x" in said
    assert f"the least of {broken}" in said
    assert said[-1] == "again: make sim FIRST=5 SEEDS=3"
    assert command.sweep(8, 1, processes=1, show_counts=False) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("7 of 7 runs from seed 8 of each kind on in ")


def test_open_findings_are_open() -> None:
    """If the seed of one passes, its defect is gone: delete it, and add its seed to seeds.txt."""
    for finding in OPEN:
        assert open_finding(finding.seed, run(finding.seed).problem or "") is finding


def test_run_ends_as_an_open_finding_only_with_its_kind_and_problem() -> None:
    finding = Finding(5_000_001, 5_000_000, r"Violation: restore: topic \w+ is gone", "why")
    problem = "Violation: restore: topic 7 is gone, and more"
    assert open_finding(5_900_000, problem, (finding,)) is finding
    assert open_finding(900_000, problem, (finding,)) is None
    assert open_finding(5_900_000, f"first {problem}", (finding,)) is None
