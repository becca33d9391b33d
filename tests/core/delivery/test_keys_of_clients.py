"""By which key a message of a gateway's client is delivered to a key_shared subscription."""

import zlib

from oncelog.core.delivery.events import StoredEntry
from oncelog.core.delivery.key_ranges import SLOTS, slots_of
from oncelog.core.formats.entry import EntryKind
from tests.core import kafka_batches
from tests.core.builders import LogOf
from tests.core.pulsar_entries import Sent, as_batch, batched, encrypted, numbered


def slots(entry: bytes, ids: list[int], *, unit: bool = False, count: int | None = None, skip: int = 0) -> object:
    log = LogOf()
    body = as_batch(entry, ids, unit=unit, count=count)
    header = log.add(EntryKind.MESSAGES, body, count=(count or len(ids)) - skip, skip_first=skip)
    return slots_of(StoredEntry(header.position, 0, header.count, skip, log.entries[0][1]))


def slot(key: bytes) -> int:
    return zlib.crc32(key) % SLOTS


def test_the_ordering_key_comes_before_the_key() -> None:
    """As in Pulsar. A known prefix is left out; a message with neither has no slot."""
    sent = [
        Sent(1, b"", b"a"), Sent(2, b"", b"b", ordering_key=b"order"), Sent(3, b""),
        Sent(4, b"", ordering_key=b"order"),
    ]  # fmt: skip
    entry = batched(sent, codec=3)
    assert slots(entry, [1, 2, 3, 4]) == [slot(b"a"), slot(b"order"), None, slot(b"order")]
    assert slots(entry, [1, 2, 3, 4], skip=2) == [None, slot(b"order")]
    assert slots(batched(sent[:1]), [1]) == [slot(b"a")]


def test_an_encrypted_entry_has_the_key_that_it_shows() -> None:
    assert slots(encrypted(1, 3, count=3, key=b"a"), [1, 3], unit=True, count=3) == [slot(b"a")] * 3
    assert slots(batched(numbered([1, 2])), [1, 2]) is None


def test_an_entry_that_cannot_be_read_has_no_keys() -> None:
    """Consumers report it when they decode it."""
    assert slots(batched([Sent(1, b"", b"a"), Sent(2, b"")]), [1, 3]) is None


def test_a_record_of_kafka_has_its_key() -> None:
    """An empty one is a key, a null one is none. Records without any have no slots."""
    sent = [kafka_batches.Sent(b"", b"a"), kafka_batches.Sent(None), kafka_batches.Sent(b"", b"")]
    assert slots_of_kafka(sent) == [slot(b"a"), None, slot(b"")]
    assert slots_of_kafka(sent, skip=1) == [None, slot(b"")]
    assert slots_of_kafka(sent[1:2]) is None


def slots_of_kafka(sent: list[kafka_batches.Sent], *, skip: int = 0) -> object:
    log = LogOf()
    body = kafka_batches.as_batch(kafka_batches.batched(sent, codec=1), range(len(sent)))
    header = log.add(EntryKind.MESSAGES, body, count=len(sent) - skip, skip_first=skip)
    return slots_of(StoredEntry(header.position, 0, header.count, skip, log.entries[0][1]))
