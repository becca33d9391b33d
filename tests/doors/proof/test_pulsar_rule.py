"""Pulsar's rule, as its own tests (MessageDuplicationTest) have it, and what the left door answers."""

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.sends import WriteReceipt, WriteSendError
from oncelog_doors.core.pulsar.server_errors import ServerError
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected
from oncelog_doors.proof.pulsar.cluster import PulsarSends
from oncelog_doors.proof.pulsar.rule import NOTHING, SNAPSHOT_ENTRIES, SNAPSHOT_NAMES, Finding, PulsarMarks

SHOP = "shop"


def marks(*, pushed: int, persisted: int | None = None) -> PulsarMarks:
    """Of one producer that has sent the ids from 0 on in batches."""
    made = PulsarMarks()
    if persisted is not None:
        assert made.found(SHOP, 0, persisted) is Finding.NEW
        made.written(SHOP, persisted)
    if persisted is None or pushed > persisted:
        assert made.found(SHOP, 0 if persisted is None else persisted + 1, pushed) is Finding.NEW
    return made


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (6, 6, Finding.NEW),
        (100, 200, Finding.NEW),  # holes are legal
        (0, 0, Finding.DUPLICATE),
        (2, 2, Finding.DUPLICATE),
        (2, 9, Finding.DUPLICATE),  # also its new tail
        (3, 3, Finding.UNKNOWN),
        (5, 9, Finding.UNKNOWN),
    ],
)
def test_batch_is_judged_by_its_first_id_alone(first: int, last: int, expected: Finding) -> None:
    assert marks(pushed=5, persisted=2).found(SHOP, first, last) is expected


def test_nothing_written_yet_is_unknown() -> None:
    assert marks(pushed=5).found(SHOP, 0, 0) is Finding.UNKNOWN


def test_names_are_independent() -> None:
    made = marks(pushed=5, persisted=5)
    assert made.found("another", 0, 0) is Finding.NEW
    assert made.last_sequence_id("a third") == NOTHING


def test_only_a_new_batch_moves_what_a_new_producer_is_told() -> None:
    """It gets what was taken, written or not."""
    made = marks(pushed=5, persisted=2)
    made.found(SHOP, 2, 9)
    made.found(SHOP, 4, 9)
    assert made.last_sequence_id(SHOP) == 5


def test_broker_that_starts_knows_the_newest_entry_of_a_name() -> None:
    """Not the highest one: each entry replaces what was known."""
    made = PulsarMarks.recovered([(SHOP, 7), (SHOP, 5)])
    assert (made.found(SHOP, 5, 5), made.found(SHOP, 6, 6)) == (Finding.DUPLICATE, Finding.NEW)


def test_names_that_a_snapshot_does_not_keep_are_forgotten() -> None:
    """Those behind it are known."""
    before = [(f"name {number}", 1) for number in range(SNAPSHOT_ENTRIES)]
    made = PulsarMarks.recovered([*before, (SHOP, 4)])
    found = [made.found(name, 1, 1) for name, _ in before]
    assert found == [Finding.DUPLICATE] * SNAPSHOT_NAMES + [Finding.NEW] * (SNAPSHOT_ENTRIES - SNAPSHOT_NAMES)
    assert made.found(SHOP, 4, 4) is Finding.DUPLICATE


def test_answers_leave_in_any_order_and_unknown_is_persistence_error() -> None:
    sends, place = PulsarSends(ClientFamily.CPP), Position(LedgerId(1), EntryId(2))
    first, second, third = (sends.taken(ids) for ids in (Ids(1), Ids(2, 4), Ids(5)))
    [error] = sends.decided(second, Rejected("unknown"))
    assert isinstance(error, WriteSendError)
    assert (error.sequence_id, error.refusal.code) == (4, ServerError.PERSISTENCE_ERROR)
    assert sends.decided(third, Accepted()) == [WriteReceipt(Ids(5), None)]
    assert sends.waiting == 1
    assert sends.takes
    assert sends.decided(first, Accepted(place)) == [WriteReceipt(Ids(1), place)]
