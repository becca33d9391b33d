"""Where a reader begins: the place that a client's id means, and what clients then give to their applications."""

import pytest

from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.deliveries import RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import (
    NO_BATCH_INDEX,
    FromEnd,
    FromEntry,
    FromFirst,
    Start,
    before,
    start_at_id,
)
from oncelog_doors.core.pulsar.permits import Permits
from tests.core.builders import at
from tests.doors.core.pulsar.stored_batches import columns, of_client, stored

MINUS_1 = 2**64 - 1
LONG_MAX = 2**63 - 1


@pytest.mark.hazard("reader-start")
@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "start"),
    [
        (MINUS_1, MINUS_1, FromFirst()),
        (2**63, 4, FromFirst()),
        (LONG_MAX, LONG_MAX, FromEnd()),
        (LONG_MAX, 0, FromEnd()),
        (7, MINUS_1, FromEntry(at(0, 7))),
        (7, 0, FromEntry(at(0, 7))),
        (7, 12, FromEntry(at(12, 7))),
        (0, 0, FromEntry(at(0, 0))),
    ],
)
def test_place_of_an_id(ledger_id: int, entry_id: int, start: Start) -> None:
    """Also of numbers that clients mean as negative. -1:-1 is what a client has of a message without a place."""
    assert start_at_id(ledger_id, entry_id) == start


def test_place_in_front_of_an_entry_may_be_in_front_of_its_ledger() -> None:
    """Clients compare it with the last id."""
    assert before(at(3)) == at(2)
    assert before(at(0)) == Position(LedgerId(1), EntryId(-1))


# --- what a client then gives to its application ----------------------------------------------------------------------

#: A single message, a batch, a batch of one, one with a known prefix, and one that a client wrote.
LOG = [
    stored(columns([b"a"]), entry_id=0),
    stored(columns([b"b", b"c", b"d"], [1, 2, 4]), entry_id=1),
    stored(columns([b"x", b"y", b"e"], [3, 4, 5]), entry_id=2, skip_first=2),
    stored(columns([b"x", b"f", b"g"], [5, 6, 7]), entry_id=4, skip_first=1),
    stored(columns([b"h"]), entry_id=0, ledger_id=9),
    stored(columns([b"i", b"j"]), entry_id=1, ledger_id=9),
]
#: ledger, entry, batch index: as a client numbers what it gets.
Place = tuple[int, int, int]


def messages_of(raw: RawBatch) -> list[Place]:
    """As all clients number them: -1 for a message that is no batch."""
    made = delivery_of(raw, 1 << 20)
    ledger_id, entry_id = made.id.position
    if last_id_of(raw).batch_index == NO_BATCH_INDEX:
        return [(ledger_id, entry_id, NO_BATCH_INDEX)]
    return [(ledger_id, entry_id, index) for index in range(made.messages)]


EVERYTHING = [place for raw in LOG for place in messages_of(raw)]


def received(start: Place, *, inclusive: bool) -> list[Place]:
    """What the application of a Java, C++ or Go client gets: they drop, of the entry that they have named alone, what
    is at or in front of their start."""
    begin = start_at_id(start[0], start[1])
    assert isinstance(begin, FromEntry)
    sent = [
        place
        for raw in LOG
        if raw.entry.position >= begin.position
        for place in messages_of(raw)
    ]  # fmt: skip
    return [
        place
        for place in sent
        if place[:2] != start[:2] or place[2] > start[2] or (inclusive and place[2] == start[2])
    ]  # fmt: skip


@pytest.mark.hazard("reader-start")
@pytest.mark.parametrize("inclusive", [False, True], ids=["behind", "with"])
@pytest.mark.parametrize("number", range(len(EVERYTHING)))
def test_reader_skips_and_repeats_nothing_from_any_message(number: int, *, inclusive: bool) -> None:
    """Each id that any message of the log has, as the start of a reader that wants it, or the next one."""
    wanted = EVERYTHING[number:] if inclusive else EVERYTHING[number + 1 :]
    assert received(EVERYTHING[number], inclusive=inclusive) == wanted


@pytest.mark.hazard("last-id-of-no-message")
@pytest.mark.parametrize("number", range(len(LOG)))
def test_last_id_is_that_of_the_last_message_that_is_delivered(number: int) -> None:
    """Else a client waits for a message that never comes: also of a batch with a known prefix, and of a single one."""
    last = last_id_of(LOG[number])
    assert (*last.position, last.batch_index) == messages_of(LOG[number])[-1]


def test_last_id_of_an_entry_of_a_client() -> None:
    """A batch of one message has an index, a single message none: the entry itself says which it is."""
    head = b"\x0e\x01\0\0\0\0\0\0\0"
    single, batch = b"\x0a\x01p\x10\x01\x18\x01", b"\x0a\x01p\x10\x01\x18\x01\x58\x01"
    for metadata, index in ((single, NO_BATCH_INDEX), (batch, 0)):
        raw = stored(of_client(head + bytes([len(metadata)]) + metadata + b"value", [1]))
        assert last_id_of(raw).batch_index == index


# --- permits ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("entry-above-the-permits")
def test_entry_goes_out_whole_while_any_permit_is_left() -> None:
    """Then the sum is below 0, and the client gives permits for all of its messages before the next one goes."""
    permits = Permits()
    may_send = [permits.any]
    permits.flow(1)
    may_send.append(permits.any)
    permits.sent(1000)
    assert permits.left == -999
    for given in (500, 499, 1):
        may_send.append(permits.any)
        permits.flow(given)
    assert [*may_send, permits.any] == [False, True, False, False, False, True]
