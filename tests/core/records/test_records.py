"""The records in the metadata store: they round-trip, or raise CorruptEntry."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.topic_record import (
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
from oncelog.core.process_version import PROCESS_VERSION
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


@pytest.mark.parametrize("decode", [decode_ledger, decode_topic, decode_cursor])
@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"3", b"{}", b'{"format":2}', b'{"format":1}', b'{"format":1,"ledgers":[[1]]}', b"null"],
)
def test_bytes_of_another_format_are_corrupt(decode: Callable[[bytes], object], data: bytes) -> None:
    """Damage or a later version raises CorruptEntry, so that no process acts on a part of it."""
    with pytest.raises(CorruptEntry):
        decode(data)


@pytest.mark.hazard("older-owner-and-ack-log")
def test_first_ledger_of_an_ack_log_raises_the_format_of_the_topic() -> None:
    """A process of before ack logs reads format 1 only: it can neither serve the topic nor write the record back
    without its ack log."""
    with_acks = RECORD.with_ack_ledger(LedgerId(10))
    assert json.loads(encode_topic(RECORD))["format"] == 1
    assert json.loads(encode_topic(with_acks))["format"] == 2
    assert RECORD.can_be_served_by(1)
    assert not with_acks.can_be_served_by(2)
    assert with_acks.can_be_served_by(PROCESS_VERSION)
    unknown = json.loads(encode_topic(with_acks)) | {"format": 4}
    with pytest.raises(CorruptEntry):
        decode_topic(json.dumps(unknown).encode())


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
