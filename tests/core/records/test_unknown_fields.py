"""A record that a newer version has written keeps the newer version's fields through every change of this one."""

import json
from collections.abc import Callable

import pytest

from oncelog.core.formats.ledger_page import PageLink
from oncelog.core.formats.topic_record import (
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
from oncelog.core.http_publish.key_dataset import DatasetRecord, FoundDataset, RecordDataset, check_dataset
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, decode_ledger, encode_ledger
from oncelog.core.node.starts import JournalEnd, LastStart, StorageEnd, next_start
from oncelog.core.records.id_claim import (
    CounterRecord,
    decode_counter,
    encode_counter,
)
from tests.core.builders import TOPIC, A, B, C, at
from tests.core.records.claimers import Claimer

pytestmark = pytest.mark.hazard("dropped-field")

#: What a newer version may add: a value of any type.
LATER = {"x_future": {"since": [3, "q"]}, "x_flag": True}


def later(encoded: bytes) -> bytes:
    return json.dumps({**json.loads(encoded), **LATER}).encode()


def kept(encoded: bytes) -> bool:
    fields = json.loads(encoded)
    return {name: fields.get(name) for name in LATER} == LATER


TOPIC_RECORD = decode_topic(
    later(
        encode_topic(
            TopicRecord(
                TOPIC, "public/default/t", A, OwnerEpoch(3),
                (LedgerLink(LedgerId(4), 0), LedgerLink(LedgerId(9), 70), LedgerLink(LedgerId(11), 90)),
                acks=(LedgerId(5), LedgerId(6)), format=FORMAT_WITH_HEADS,
            )
        )
    )
)  # fmt: skip
LEDGER = decode_ledger(later(encode_ledger(LedgerMetadata(LedgerId(4), TOPIC, (A, B), 2))))
CLOSED = LEDGER.closed(end=EntryId(8), length=99)
PAGE = PageLink(LedgerId(4), LedgerId(4), 0, LedgerId(9), ledgers=2, message_bytes=1, ended_ms=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record,
        lambda record: record.placed_on(B),
        lambda record: record.with_ledger(LedgerLink(LedgerId(12), 91)),
        lambda record: record.with_page(PAGE),
        lambda record: record.without(LedgerId(4)),
        lambda record: record.with_ack_ledger(LedgerId(13)),
        lambda record: record.without_first_acks(1),
    ],
)
def test_topic_record(change: Callable[[TopicRecord], TopicRecord]) -> None:
    """Every change that an owner, or a service that places it, makes."""
    changed = change(TOPIC_RECORD)
    assert kept(encode_topic(changed))
    assert decode_topic(encode_topic(changed)) == changed


@pytest.mark.parametrize(
    "changed",
    [
        LEDGER,
        LEDGER.in_recovery(),
        LEDGER.give_up([A], by="operator"),
        CLOSED,
        CLOSED.give_up_entries([A], by="operator"),
        CLOSED.join(C),
        CLOSED.join(C).drop_joining(),
        CLOSED.join(C).swap(A),
        CLOSED.mark_verified(),
        CLOSED.mark_damaged(),
        CLOSED.mark_lost([EntryRange(EntryId(1), EntryId(2))]),
        CLOSED.freeze(),
    ],
)
def test_ledger_record(changed: LedgerMetadata) -> None:
    """Every change by an owner, by repair and by an operator."""
    assert kept(encode_ledger(changed))
    assert decode_ledger(encode_ledger(changed)) == changed


def test_cursor_record() -> None:
    """The owner replaces its list."""
    record = decode_cursor(later(encode_cursor(CursorRecord(OwnerEpoch(3), (CursorLink(LedgerId(5), at(0)),)))))
    assert kept(encode_cursor(record.with_ledgers((CursorLink(LedgerId(7), None),))))


def test_counter() -> None:
    """A claim is a new record in place of the former one."""
    former = decode_counter(later(encode_counter(CounterRecord(101, A, "nonce"))))
    claimer = Claimer(B, block=1)
    claimer.request(1)
    claimer.answer((former, 3))
    claim = claimer.asks.record
    assert claim is not None
    assert kept(encode_counter(claim))
    assert claim.next == former.next + 1


def test_start_of_a_storage_node() -> None:
    """Both what the directory knows and what the cluster notes."""
    file, noted = next_start(
        LastStart(2, "two", "one", LATER),
        StorageEnd(2, "two", JournalEnd(1, 2), further=LATER),
        "three",
        JournalEnd(1, 3),
    )
    assert file.further == noted.further == LATER


@pytest.mark.parametrize("found", [FoundDataset("marker", "run", 0, 1), FoundDataset("other", "run", 0, 0)])
def test_record_of_the_keys(found: FoundDataset) -> None:
    """Redis has a replica from now on; its data was lost."""
    verdict = check_dataset(DatasetRecord("marker", "run", further=LATER), found, writes_seen=0, now_ms=5, window_ms=1)
    assert isinstance(verdict, RecordDataset)
    assert verdict.record.further == LATER


def test_records_without_unknown_fields_share_one_object() -> None:
    """A cluster has a hundred thousand ledger records in memory."""
    first = decode_ledger(encode_ledger(LedgerMetadata(LedgerId(4), TOPIC, (A, B), 2)))
    assert first.further is LedgerMetadata(LedgerId(5), TOPIC, (A, B), 2).further
    assert hash(LEDGER) == hash(first)
