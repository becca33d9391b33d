"""Entries of clients, checked before they are stored: what they say of themselves is what they hold."""

import pytest
from crc32c import crc32c

from oncelog.client.gateways import PackedEntry
from oncelog.core.formats.batch import PayloadFormat
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected
from oncelog_doors.log_client.client_entries import packed
from tests.core.pulsar_entries import batched, encrypted, numbered, of_one_key, plain, summed

LIMIT = 1 << 20


def checked(entry: bytes, ids: Ids, count: int = 1, *, name: str = "p", limit: int = LIMIT) -> object:
    """entry: with another checksum than clients use."""
    return packed(summed(entry, crc32c), ids, count, producer_name=name, bytes_max=limit)


def test_one_message_is_packed_as_it_came() -> None:
    """No byte of it is built again."""
    entry = summed(plain(numbered([7])[0]), crc32c)
    found = packed(entry, Ids(7), 1, producer_name="p", bytes_max=LIMIT)
    assert not isinstance(found, Rejected)
    assert (found.payload, found.count, found.ids, found.payload_format) == (
        entry,
        1,
        (7, 7, b""),
        PayloadFormat.PULSAR,
    )
    assert found.publish_time_ms == 1_764_000_000_000


@pytest.mark.parametrize("highest", [None, 5])
def test_batch_has_the_ids_of_its_messages(highest: int | None) -> None:
    """With holes; older clients do not send the highest one."""
    found = checked(batched(numbered([2, 3, 5]), with_highest=highest is not None), Ids(2, highest), 3)
    assert isinstance(found, PackedEntry)
    assert (found.unit, found.count, found.ids[:2]) == (False, 3, (2, 5))


@pytest.mark.parametrize(
    ("entry", "ids"),
    [(of_one_key(numbered([2, 4])), Ids(4)), (encrypted(2, 3, count=2), Ids(2, 3))],
    ids=["of-one-key", "encrypted"],
)
def test_batch_whose_ids_the_door_cannot_order_is_a_unit(entry: bytes, ids: Ids) -> None:
    """Java's batches by key, known by their highest id, and encrypted ones. The log takes the whole, or nothing."""
    found = checked(entry, ids, 2)
    assert isinstance(found, PackedEntry)
    assert (found.unit, found.count, found.ids) == (True, 2, (ids.sequence_id, ids.last, b""))


@pytest.mark.parametrize(
    ("entry", "ids", "count", "says"),
    [
        (plain(numbered([7])[0]), Ids(8), 1, "sequence ids 8: the entry has the sequence ids 7 to 7"),
        (batched(numbered([2, 3])), Ids(2, 4), 2, "the entry has the sequence ids 2 to 3"),
        (batched(numbered([2, 3])), Ids(2, 3), 3, "the entry has 2 messages, and its SEND says 3"),
        (plain(numbered([7])[0], producer="other"), Ids(7), 1, "names the producer 'other', and was sent by 'p'"),
        (batched(numbered([2, 3]))[:-1], Ids(2, 3), 2, "sequence ids 2 to 3"),
    ],
    ids=["other-id", "other-highest", "other-count", "other-name", "cut"],
)
@pytest.mark.hazard("batch-that-counts-wrongly", "entry-of-another-producer")
def test_entry_that_contradicts_its_command_is_rejected(entry: bytes, ids: Ids, count: int, says: str) -> None:
    """Readers count by the header: it must be true."""
    found = checked(entry, ids, count)
    assert isinstance(found, Rejected)
    assert says in found.sentence


def test_wrong_checksum_is_rejected() -> None:
    """It is the client's own, over the bytes that readers get."""
    found = packed(plain(numbered([7])[0]), Ids(7), 1, producer_name="p", bytes_max=LIMIT)
    assert isinstance(found, Rejected)
    assert "checksum" in found.sentence


def test_batch_above_the_limit_is_rejected() -> None:
    """With both numbers; the limit is the owner's."""
    entry = plain(numbered([7])[0])
    assert not isinstance(checked(entry, Ids(7), limit=len(entry)), Rejected)
    found = checked(entry, Ids(7), limit=len(entry) - 1)
    assert found == Rejected(f"a batch of {len(entry)} bytes exceeds the limit of the log, {len(entry) - 1}")
