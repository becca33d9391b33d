"""The owner's header and its control entries: intact and the one asked for, or CorruptEntry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.entry import (
    HEADER_BYTES,
    EntryHeader,
    EntryKind,
    ProducerOpened,
    SequenceMode,
    body_of,
    decode_entry,
    decode_opened,
    encode_header,
    encode_opened,
    peek_header,
)
from oncelog.core.ids import EntryId, Generation, InstanceId, LedgerId, OwnerEpoch, Position, ProducerId, SequenceId
from tests.core.builders import TOPIC, checksum, grant

HEADER = EntryHeader(
    kind=EntryKind.MESSAGES,
    ledger_id=LedgerId(7),
    entry_id=EntryId(0),
    last_add_confirmed=EntryId(-1),
    length=12,
    owner_epoch=OwnerEpoch(3),
    append_time_ms=1_700_000_000_000,
    base_index=40,
    skip_first=2,
    count=5,
    body_bytes=12,
    topic_id=TOPIC,
)
DATA = encode_header(HEADER, b"the body 012", checksum) + b"the body 012"


def read(data: bytes) -> EntryHeader:
    return decode_entry(data, ledger_id=LedgerId(7), entry_id=EntryId(0), checksum=checksum)


def test_entry_round_trips_through_bytes() -> None:
    """Every field comes back, and the body is a slice of the same bytes."""
    assert read(DATA) == HEADER
    assert bytes(body_of(DATA)) == b"the body 012"
    assert HEADER.position == Position(LedgerId(7), EntryId(0))
    assert HEADER.next_index == 45


def test_truncated_entry_is_corrupt() -> None:
    """Cut at every byte, or with one too many."""
    for cut in range(len(DATA)):
        with pytest.raises(CorruptEntry):
            read(DATA[:cut])
    with pytest.raises(CorruptEntry):
        read(DATA + b"\0")


def test_flipped_bit_is_detected() -> None:
    """The kind and the format are covered too: a chunk must not pass for messages."""
    for bit in range(8 * len(DATA)):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptEntry):
            read(bytes(damaged))


def test_entry_other_than_the_requested_one_is_corrupt() -> None:
    """Valid bytes at the wrong position count as damage."""
    for ledger_id, entry_id in ((8, 0), (7, 1)):
        with pytest.raises(CorruptEntry, match="expected entry"):
            decode_entry(DATA, ledger_id=LedgerId(ledger_id), entry_id=EntryId(entry_id), checksum=checksum)


def test_header_is_read_without_its_body() -> None:
    """The replay reads only headers."""
    assert peek_header(DATA[:HEADER_BYTES]) == HEADER


@pytest.mark.hazard("incomplete-grant")
@given(
    name=st.text(max_size=300),
    mode=st.sampled_from(SequenceMode),
    persisted=st.integers(-1, 2**63 - 1),
    instance_id=st.just(b"") | st.binary(min_size=16, max_size=16).filter(any),
    role=st.text(max_size=300),
)
def test_grant_round_trips_through_bytes(
    name: str, mode: SequenceMode, persisted: int, instance_id: bytes, role: str
) -> None:
    """Any name, a mark of -1, with and without an instance id and a role."""
    opened = ProducerOpened(
        TOPIC,
        name,
        ProducerId(2**63),
        Generation(2**32 - 1),
        mode,
        SequenceId(persisted),
        InstanceId(instance_id),
        role,
    )
    assert decode_opened(encode_opened(opened)) == opened


@given(data=st.binary(max_size=80))
def test_arbitrary_bytes_are_a_corrupt_grant(data: bytes) -> None:
    """Cut, damaged, with a name that is no text: CorruptEntry and nothing else."""
    for candidate in (data, encode_opened(grant("name"))[:-4] + data):
        try:
            decode_opened(candidate)
        except CorruptEntry:
            continue


def test_name_that_is_not_utf8_is_corrupt() -> None:
    """A direct example of the case above."""
    with pytest.raises(CorruptEntry, match="UTF-8"):
        decode_opened(encode_opened(grant("ab"))[:-2] + b"\xff\xff")
