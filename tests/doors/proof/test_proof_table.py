"""What the proof makes of outcomes, and what it never counts as passed."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from oncelog_doors.proof.histories import Proof
from oncelog_doors.proof.kafka.proof import KAFKA
from oncelog_doors.proof.outcome import Consumed, Outcome
from oncelog_doors.proof.pulsar.client_kinds import client_kinds
from oncelog_doors.proof.pulsar.histories import HISTORIES, LEFT_OUT
from oncelog_doors.proof.pulsar.proof import PULSAR
from oncelog_doors.proof.table import Row, print_table, proven, summary, to_json

HISTORY = HISTORIES[0]
PASSED = Row(HISTORY, "java", HISTORY.left, HISTORY.right)
MISSING = Row(HISTORY, "go", missing="not installed")


def outcome(acknowledged: str = "", refused: str = "", unanswered: str = "", stored: str = "", told: str = "") -> str:
    return str(Outcome(acknowledged.split(), refused.split(), unanswered.split(), stored.split(), told.split()))


def test_acknowledged_and_not_read_is_lost() -> None:
    assert outcome("1 2 3 x", stored="1 3") == "acknowledged 1-3 x; read 1 3; LOST 2 x"


def test_told_and_not_read_is_lost() -> None:
    assert outcome("3", stored="1 3", told="1 2") == "acknowledged 3; read 1 3; LOST 2"


def test_read_twice_is_doubled() -> None:
    assert outcome("1 2", stored="1 2 2") == "acknowledged 1-2; read 1-2; DOUBLED 2"


def test_repetition_is_stored_by_its_first_copy() -> None:
    assert outcome("1 1'", stored="1") == "acknowledged 1 1'; read 1"


def test_refused_and_unanswered_are_not_lost() -> None:
    assert outcome("1", "2", "3", "1") == "acknowledged 1; read 1; refused 2; NO RECEIPT 3"


def test_acknowledged_and_received_is_again() -> None:
    again = Consumed(["1", "2", "3", "5"], ["2", "4", "5", "6"])
    assert str(again) == "acknowledged 1-3 5; received 2 4-6; AGAIN 2 5"
    assert str(Consumed(["2", "4"], [], ["1", "3"])) == "acknowledged 2 4; MISSED 1 3"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (PASSED, True),
        (replace(PASSED, left=HISTORY.right), False),  # the left side does not fail
        (replace(PASSED, left="LOST something else"), False),
        (replace(PASSED, right=HISTORY.left), False),
        (replace(PASSED, right="no outcome"), False),
        (MISSING, None),
        (replace(PASSED, missing="not installed"), None),
    ],
)
def test_row_passes_if_both_sides_are_as_stated(row: Row, expected: bool | None) -> None:
    assert row.passed is expected


def test_nothing_is_proven_without_rows_or_with_a_failed_one() -> None:
    assert proven([PASSED, MISSING])
    assert not proven([PASSED, replace(PASSED, right="")])
    assert not proven([MISSING])
    assert not proven([])


def test_missing_client_is_named_and_counts_as_not_run() -> None:
    said = summary([PASSED, MISSING, MISSING])
    assert said == "1 of 1 rows passed; 2 rows were NOT RUN, and prove nothing; go: not installed"
    shown = StringIO()
    print_table(PULSAR, [PASSED, MISSING], Console(file=shown, width=160))
    assert "not run: not installed" in shown.getvalue()
    assert "NOT RUN" in shown.getvalue()
    found = to_json(PULSAR, [PASSED, MISSING])
    assert [row["passed"] for row in found["rows"]] == [True, None]  # type: ignore[attr-defined]


def test_failed_row_shows_what_was_expected() -> None:
    shown = StringIO()
    print_table(PULSAR, [replace(PASSED, right="another outcome")], Console(file=shown, width=400))
    assert f"expected: {HISTORY.right}" in shown.getvalue()


def test_clients_that_are_not_named_or_not_there_are_missing(tmp_path: Path) -> None:
    assert [kind.name for kind in client_kinds(None, None) if kind.missing] == ["java", "go"]
    assert all(kind.missing for kind in client_kinds(tmp_path, tmp_path / "none")[1:])


@pytest.mark.parametrize("proof", [PULSAR, KAFKA], ids=lambda proof: proof.protocol)
def test_each_side_of_a_history_has_another_outcome(proof: Proof) -> None:
    """A row whose sides agree would show nothing."""
    assert [each for each in proof.histories if each.left == each.right] == []


@pytest.mark.parametrize("proof", [PULSAR, KAFKA], ids=lambda proof: proof.protocol)
def test_each_client_is_known_and_no_defect_is_left_out_that_is_shown(proof: Proof) -> None:
    assert {client for each in proof.histories for client in each.clients} <= set(proof.clients)
    assert not set(proof.defects) & {defect for defects in proof.left_out for defect in defects.split()}


def test_each_defect_is_shown_or_left_out() -> None:
    """Those that docs/pulsar.md lists: of data, of duplicates, of operation, and of acknowledgements (K)."""
    shown = {defect for history in HISTORIES for defect in history.defect.split()}
    left_out = {defect for defects in LEFT_OUT for defect in defects.split()}
    counts = {"D": 9, "A": 8, "B": 8, "K": 4, "P": 0}
    named = {f"{letter}{number}" for letter, count in counts.items() for number in range(1, count + 1)}
    assert shown | left_out == named | {"P2"}
    assert not shown & left_out
