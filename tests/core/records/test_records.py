"""The records in the metadata store: they round-trip, or raise CorruptEntry."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.topic_record import (
    FORMAT,
    FORMAT_WITH_HEADS,
    CursorLink,
    CursorRecord,
    LedgerLink,
    TopicRecord,
    decode_cursor,
    decode_topic,
    encode_cursor,
    encode_topic,
)
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState, decode_ledger, encode_ledger
from tests.core.builders import TOPIC, A, B, C, at

LEDGER = LedgerMetadata(LedgerId(4), TOPIC, (A, B, C), 2)
RECORD = TopicRecord(
    TOPIC, "public/default/t", A, OwnerEpoch(3), (LedgerLink(LedgerId(4), 0), LedgerLink(LedgerId(9), 70))
)
CURSOR = CursorRecord(OwnerEpoch(3), (CursorLink(LedgerId(5), at(0)), CursorLink(LedgerId(6), None)))


@pytest.mark.parametrize(
    "metadata",
    [LEDGER, LEDGER.in_recovery(), LEDGER.closed(end=EntryId(-1), length=0), LEDGER.closed(end=EntryId(8), length=99)],
)
def test_ledger_record_round_trips_through_bytes(metadata: LedgerMetadata) -> None:
    """Each state, and an empty end."""
    assert decode_ledger(encode_ledger(metadata)) == metadata


@pytest.mark.hazard("indexes-after-a-trim")
def test_topic_record_round_trips_through_bytes() -> None:
    """With and without an owner, with and without ledgers."""
    with_acks = RECORD.with_ack_ledger(LedgerId(10)).with_ack_ledger(LedgerId(12))
    for record in (
        RECORD,
        TopicRecord(TOPIC, "t"),
        RECORD.without(LedgerId(4)),
        with_acks,
        with_acks.without_first_acks(1),
    ):
        assert decode_topic(encode_topic(record)) == record


def test_cursor_record_round_trips_through_bytes() -> None:
    """A base at entry 0 differs from no base."""
    for record in (CURSOR, CURSOR.with_ledgers(CURSOR.ledgers[1:])):
        assert decode_cursor(encode_cursor(record)) == record


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_floor_rises_with_what_is_trimmed_and_never_falls() -> None:
    """An older record without a floor has deleted nothing. The claim of an epoch keeps the floor."""
    assert RECORD.without(LedgerId(4)).deleted_below == 9
    assert RECORD.without(LedgerId(4)).placed_on(B).deleted_below == 9
    assert CURSOR.with_ledgers(CURSOR.ledgers[1:]).deleted_below == 6
    assert replace(CURSOR, deleted_below=LedgerId(7)).with_ledgers(CURSOR.ledgers).deleted_below == 7
    acks = RECORD.with_ack_ledger(LedgerId(10)).with_ack_ledger(LedgerId(12)).without_first_acks(1)
    assert (acks.acks, acks.acks_deleted_below, acks.deleted_below) == ((12,), 12, 0)
    assert acks.placed_on(B).acks_deleted_below == 12
    topic, cursor = json.loads(encode_topic(RECORD)), json.loads(encode_cursor(CURSOR))
    del topic["deleted_below"], topic["acks"], topic["acks_deleted_below"], cursor["deleted_below"]
    assert decode_topic(json.dumps(topic).encode()) == RECORD
    assert decode_cursor(json.dumps(cursor).encode()) == CURSOR


@pytest.mark.parametrize("form", range(2, 6))
def test_topic_record_below_level_8_is_refused_in_one_sentence(form: int) -> None:
    """No program has written one."""
    data = json.dumps({**json.loads(encode_topic(RECORD)), "format": form}).encode()
    with pytest.raises(CorruptEntry, match=f"topic record of format {form}, below level 8, the lowest that this "):
        decode_topic(data)


def test_format_of_a_topic_record_rises_with_its_first_ledger() -> None:
    """Of either chain, and stays."""
    assert RECORD.format == FORMAT
    for listed in (RECORD.with_ledger(LedgerLink(LedgerId(99), 0)), RECORD.with_ack_ledger(LedgerId(10))):
        assert listed.format == listed.placed_on(A).format == FORMAT_WITH_HEADS
        assert decode_topic(encode_topic(listed)) == listed


@pytest.mark.parametrize("decode", [decode_ledger, decode_topic, decode_cursor])
@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"3", b"{}", b'{"format":2}', b'{"format":1}', b'{"format":1,"ledgers":[[1]]}', b"null"],
)
def test_bytes_of_another_format_are_corrupt(decode: Callable[[bytes], object], data: bytes) -> None:
    """Damage or a later version raises CorruptEntry, so that no process acts on a part of it."""
    with pytest.raises(CorruptEntry):
        decode(data)


def test_ack_log_ascends_and_keeps_its_last_ledger() -> None:
    """A ledger id not above the last is refused, and a trim leaves a ledger to fence."""
    with_acks = RECORD.with_ack_ledger(LedgerId(10))
    with pytest.raises(InvariantViolated):
        with_acks.with_ack_ledger(LedgerId(10))
    with pytest.raises(InvariantViolated):
        with_acks.without_first_acks(1)


def test_closed_ledger_stays_closed() -> None:
    """`end` never changes after it."""
    closed = LEDGER.closed(end=EntryId(1), length=1)
    with pytest.raises(InvariantViolated):
        closed.closed(end=EntryId(2), length=2)
    with pytest.raises(InvariantViolated):
        closed.in_recovery()
    assert closed.state is LedgerState.CLOSED


def test_placement_changes_only_the_owner_and_the_epoch() -> None:
    """Placing a topic changes the owner and the epoch, and nothing else."""
    placed = RECORD.placed_on(Incarnation("o2"))
    assert (placed.owner, placed.owner_epoch, placed.ledgers) == ("o2", 4, RECORD.ledgers)


def test_ledger_list_ascends_and_keeps_its_last_ledger() -> None:
    """A ledger id not above the last is refused, and a trim leaves a ledger to fence."""
    for ledger_id in (9, 8):
        with pytest.raises(InvariantViolated):
            RECORD.with_ledger(LedgerLink(LedgerId(ledger_id), 80))
    with pytest.raises(InvariantViolated):
        RECORD.without(LedgerId(9))
    assert RECORD.without(LedgerId(4)).ledgers == RECORD.ledgers[1:]
