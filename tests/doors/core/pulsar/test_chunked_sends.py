"""Which chunk of a message may come next, and when its SENDs are answered."""

import random

import pytest

from oncelog.core.formats.chunks import ChunkName
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog_doors.core.pulsar.chunked_sends import ChunkPlace, Upload
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Rejected

IDS = Ids(7)
MESSAGE = Accepted(Position(LedgerId(1), EntryId(9)))


def chunk(number: int, *, count: int = 3, total: int = 25, uuid: bytes = b"shop-7") -> ChunkPlace:
    return ChunkPlace(uuid, number, count, total)


def place(entry_id: int) -> Position:
    return Position(LedgerId(1), EntryId(entry_id))


def given(*sizes: int) -> Upload:
    """A message whose chunks so far have these sizes; all are stored, at entry 0 and so on."""
    upload = Upload(chunk(0), IDS)
    for number, size in enumerate(sizes):
        assert upload.refusal_of(chunk(number), IDS, size) is None
        assert upload.take(size) == (number, sum(sizes[:number]))
        assert upload.stored(number, place(number), 100 + number) == {}
    return upload


@pytest.mark.hazard("chunks-without-their-first")
def test_receipts_are_withheld_until_the_message_is_decided() -> None:
    """And all of them name its place."""
    upload = given(10, 10, 5)
    assert upload.is_stored
    assert upload.names.chunks == tuple(ChunkName(EntryId(n), 100 + n) for n in range(3))
    assert (upload.names.ledger_id, upload.names.value_bytes) == (1, 25)
    assert upload.decided(MESSAGE) == {0: MESSAGE, 1: MESSAGE, 2: MESSAGE}
    assert upload.end() == []


def test_refusal_fails_each_chunk() -> None:
    """Also those that come later: their client has sent them by then."""
    refused = Rejected("no")
    upload = given(10)
    assert upload.decided(refused) == {0: refused}
    assert upload.take(10) == (1, 10)
    assert upload.due() == {1: refused}


@pytest.mark.parametrize(
    ("wrong", "size", "said"),
    [
        (chunk(2), 5, "chunk 1 was expected"),
        (chunk(0), 10, "chunk 1 was expected"),
        (chunk(1, uuid=b"shop-8"), 10, "without the chunks before it"),
        (chunk(1, count=4), 10, "without the chunks before it"),
        (chunk(1, total=26), 10, "without the chunks before it"),
        (chunk(1), 16, "total_chunk_msg_size says 25"),
    ],
)
def test_only_the_next_chunk_is_taken(wrong: ChunkPlace, size: int, said: str) -> None:
    refusal = given(10).refusal_of(wrong, IDS, size)
    assert refusal is not None
    assert said in refusal.sentence


@pytest.mark.parametrize("size", [4, 6])
def test_last_chunk_completes_the_declared_size(size: int) -> None:
    refusal = given(10, 10).refusal_of(chunk(2), IDS, size)
    assert refusal is not None
    assert "total_chunk_msg_size" in refusal.sentence


def test_chunk_under_another_id_is_refused() -> None:
    assert given(10).refusal_of(chunk(1), Ids(8), 10) is not None


def test_receipts_that_go_out_early_name_the_chunks_and_never_the_message() -> None:
    """The last chunk's receipt means the message: it waits."""
    upload = given(10, 10)
    assert upload.waits
    assert upload.release() == {0: Accepted(place(0)), 1: Accepted(place(1))}
    upload.take(5)
    assert upload.stored(2, place(2), 102) == {}
    assert upload.decided(MESSAGE) == {2: MESSAGE}


def test_repeated_message_has_all_its_chunks_compared() -> None:
    upload = Upload(chunk(0), IDS)
    for number, size in enumerate((10, 10, 5)):
        upload.take(size)
        assert not upload.is_repeated
        assert upload.repeated(number) == {}
    assert upload.is_repeated
    assert not upload.is_stored
    assert upload.decided(MESSAGE).keys() == {0, 1, 2}


def test_each_chunk_is_answered_once_in_any_order_of_events() -> None:
    """At most once, and all of them when the message is decided."""
    for seed in range(300):
        dice = random.Random(seed)
        upload, answered, settled = Upload(chunk(0), IDS), list[int](), list[int]()
        number = 0
        while number < 3 or dice.random() < 0.5:
            if number < 3 and dice.random() < 0.6:
                upload.take((10, 10, 5)[number])
                settled.append(number)
                number += 1
                answered += upload.due()
            elif settled and dice.random() < 0.7:
                answered += upload.stored(settled.pop(0), place(len(settled)), 1)
            elif dice.random() < 0.2:
                answered += upload.release()
        assert 2 not in answered, seed
        answered += upload.decided(MESSAGE)
        assert sorted(answered) == [0, 1, 2], seed
        assert upload.end() == []
