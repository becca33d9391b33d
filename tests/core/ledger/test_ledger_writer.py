"""The writer of one open ledger: what it confirms, and what ends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.entry import EntryKind, decode_entry
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.writer import LedgerWriter, WriterState
from tests.core.builders import TOPIC, A, B, C, D, checksum

LEDGER = LedgerMetadata(LedgerId(7), TOPIC, (A, B, C), 2)


def writer(entries: int = 0) -> LedgerWriter:
    writer = LedgerWriter(LEDGER, owner_epoch=OwnerEpoch(1), checksum=checksum)
    for i in range(entries):
        append(writer, now_ms=10 * i)
    return writer


def append(writer: LedgerWriter, *, now_ms: int = 0) -> bytes:
    add = writer.append(EntryKind.MESSAGES, b"0123456789", base_index=0, skip_first=0, count=1, now_ms=now_ms)
    return b"".join(map(bytes, add.parts))


def ids(*numbers: int) -> list[EntryId]:
    return [EntryId(number) for number in numbers]


def test_entries_are_numbered_and_carry_last_add_confirmed() -> None:
    """Id, cumulative length and last_add_confirmed at the time of the append; a header that a reader accepts."""
    core = writer(1)
    core.added(A, ids(0))
    core.added(B, ids(0))
    header = decode_entry(append(core), ledger_id=LedgerId(7), entry_id=EntryId(1), checksum=checksum)
    assert (header.entry_id, header.length, header.last_add_confirmed) == (1, 20, 0)


def test_ack_quorum_confirms() -> None:
    """One member is too few, the same member twice counts once, and a node that is no member does not count."""
    core = writer(1)
    assert not core.added(A, ids(0))
    assert not core.added(A, ids(0))
    assert not core.added(D, ids(0))
    assert core.added(C, ids(0))
    assert (core.last_add_confirmed, core.length_confirmed, core.idle) == (0, 10, True)


def test_confirmed_in_the_order_of_the_entries() -> None:
    """An entry with its ack quorum waits until the entries before it are confirmed."""
    core = writer(3)
    assert not core.added(A, ids(1, 2))
    assert not core.added(B, ids(1, 2))
    assert core.last_add_confirmed == -1
    core.added(A, ids(0))
    assert core.added(C, ids(0))
    assert core.last_add_confirmed == 2


def test_answers_for_confirmed_or_unknown_entries_are_ignored() -> None:
    """The late answer of the third member, and an answer for an entry that does not exist."""
    core = writer(1)
    core.added(A, ids(0))
    core.added(B, ids(0))
    assert not core.added(C, ids(0))
    assert not core.added(C, ids(5))
    assert core.last_add_confirmed == 0


def test_lost_member_is_absent_for_the_rest() -> None:
    """Its late answers do not count, because the rest of its copies is unknown. Its earlier answers still count."""
    core = writer(2)
    core.added(A, ids(0))
    assert core.member_lost(A)
    assert not core.added(A, ids(1))
    assert core.added(B, ids(0, 1))
    assert core.last_add_confirmed == 0
    assert core.added(C, ids(1))
    assert core.present == [B, C]


def test_loss_of_the_ack_quorum_is_reported() -> None:
    """Below the ack quorum no entry can ever be confirmed."""
    core = writer(1)
    assert core.member_lost(A)
    assert core.member_lost(A)
    assert not core.member_lost(B)
    assert not core.reachable


def test_ledger_closes_at_last_add_confirmed() -> None:
    """The record decides where the ledger ends. Nothing is confirmed after that decision."""
    core = writer(3)
    core.added(A, ids(0, 1))
    core.added(B, ids(0))
    closed = core.close()
    assert closed == LEDGER.closed(end=EntryId(0), length=10)
    assert closed.state is LedgerState.CLOSED
    assert not core.added(B, ids(1))
    assert core.last_add_confirmed == 0
    with pytest.raises(InvariantViolated):
        append(core)
    with pytest.raises(InvariantViolated):
        core.close()


def test_sealed_ledger_takes_answers_but_no_entries() -> None:
    """A planned roll waits for the last answer."""
    core = writer(1)
    core.seal()
    with pytest.raises(InvariantViolated):
        append(core)
    core.added(A, ids(0))
    assert core.added(B, ids(0))
    assert core.idle
    core.close()
    core.closed()
    core.seal()
    assert core.state is WriterState.CLOSED


def test_lost_writer_confirms_nothing() -> None:
    """The record alone decides what the ledger holds."""
    core = writer(1)
    core.added(A, ids(0))
    core.lose()
    assert not core.added(B, ids(0))


def test_laggards_are_those_without_an_answer_to_the_oldest() -> None:
    """Only present members, and only when the oldest entry is old enough."""
    core = writer(2)
    assert core.oldest_pending_ms == 0
    core.added(A, ids(0))
    assert core.laggards(now_ms=4, timeout_ms=5) == []
    assert core.laggards(now_ms=5, timeout_ms=5) == [B, C]
    core.member_lost(C)
    assert core.laggards(now_ms=5, timeout_ms=5) == [B]
    core.added(B, ids(0))
    assert core.oldest_pending_ms == 10
    assert core.laggards(now_ms=10, timeout_ms=5) == []


@given(answers=st.lists(st.tuples(st.sampled_from([A, B, C]), st.lists(st.integers(0, 9), max_size=5)), max_size=40))
def test_confirmed_entries_are_held_by_an_ack_quorum(answers: list[tuple[Incarnation, list[int]]]) -> None:
    """In any order of answers: the longest prefix of which two members hold each entry."""
    core = writer(10)
    held: dict[int, set[Incarnation]] = {i: set() for i in range(10)}
    for member, numbers in answers:
        core.added(member, ids(*numbers))
        core.check_invariants()
        for number in numbers:
            held[number].add(member)
        prefix = next((i for i in range(10) if len(held[i]) < 2), 10)
        assert core.last_add_confirmed == prefix - 1
        assert core.length_confirmed == 10 * prefix
