"""One entry of a ledger: the owner's header, then a body. For messages the body is the producer's batch, verbatim.

Layout of the header, little-endian, 96 bytes (offset, size, field):

     0 1 magic 0xE1          16 8 entry id                      56 8 base_index: number of the first new message
     1 1 format 1            24 8 last_add_confirmed (-1 none)  64 4 skip_first: messages of the batch to ignore
     2 1 kind                32 8 length: body bytes of the     68 4 count: new messages (0 for control entries)
     3 1 zero                     ledger up to and with this    72 4 body, bytes
     4 4 CRC32C of the rest  40 8 owner_epoch                    76 4 zero
     8 8 ledger id           48 8 append time, ms               80 16 topic id (UUID)

The writer computes the checksum. Storage nodes check it when they store an entry, readers when they read one; both also
check that ledger and entry are the expected ones. Recovery copies the original bytes, header and checksum included.
Source: BookKeeper's digest manager; cumulative length and LAC piggybacked in every entry.
"""

from enum import IntEnum
from struct import Struct
from sys import intern
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import (
    AS_IT_CAME,
    AS_IT_CAME_VERSION,
    Buffer,
    Checksum,
    PayloadFormat,
    checksum_of,
)
from oncelog.core.ids import (
    INSTANCE_ID_BYTES,
    NO_INSTANCE,
    EntryId,
    Generation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    TopicId,
)

MAGIC = 0xE1
FORMAT = 1
_HEADER = Struct("<BBBBIQQqQQqQIIII16s")
HEADER_BYTES = _HEADER.size
assert HEADER_BYTES == 96
_CRC = Struct("<I")
#: In the header of a batch.
_PAYLOAD_FORMAT_AT = 3


class EntryKind(IntEnum):
    """The kind of the body; an owner refuses unknown kinds.

    The header's count is 0 for control entries, and GIVEN_UP_INDEXES for GIVEN_UP. ACK_STATE belongs in the ledgers of
    the ack log only.
    """

    MESSAGES = 1
    PRODUCER_OPENED = 2
    PRODUCERS_AGED = 4
    SNAPSHOT_CHUNK = 5
    SNAPSHOT_MANIFEST = 6
    ACK_STATE = 7
    GIVEN_UP = 8
    SUBSCRIPTIONS_CHUNK = 9
    CHUNK = 10
    HEAD_LOG = 11
    HEAD_SNAPSHOTS = 12
    HEAD_ACKS = 13


class EntryHeader(NamedTuple):
    kind: int
    ledger_id: LedgerId
    entry_id: EntryId
    last_add_confirmed: EntryId
    length: int
    owner_epoch: OwnerEpoch
    append_time_ms: int
    base_index: int
    skip_first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    body_bytes: int
    topic_id: TopicId

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    @property
    def next_index(self) -> int:
        return self.base_index + self.count


def encode_header(header: EntryHeader, body: Buffer, checksum: Checksum) -> bytes:
    """Return the 96 bytes that go before `body` (len(body) == header.body_bytes)."""
    out = bytearray(
        _HEADER.pack(
            MAGIC, FORMAT, header.kind, 0, 0, header.ledger_id, header.entry_id, header.last_add_confirmed,
            header.length, header.owner_epoch, header.append_time_ms, header.base_index, header.skip_first,
            header.count, header.body_bytes, 0, bytes.fromhex(header.topic_id),
        )
    )  # fmt: skip
    _CRC.pack_into(out, 4, checksum(body, checksum_of(out, checksum)))
    return bytes(out)


def peek_header(data: Buffer) -> EntryHeader:
    """Read the header without checking the checksum or the body's length (`data` may be cut after the header).

    Raises CorruptEntry when the bytes cannot be an entry at all.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptEntry(f"an entry of {len(data)} bytes is shorter than its header of {HEADER_BYTES}")
    (
        magic, form, kind, zero, _crc, ledger_id, entry_id, lac, length, owner_epoch, append_time_ms, base_index,
        skip_first, count, body_bytes, zero_too, topic_id,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC or form != FORMAT or zero or zero_too:
        raise CorruptEntry(f"not an entry of format {FORMAT}: magic {magic:#x}, format {form}")
    return EntryHeader(
        kind, ledger_id, entry_id, lac, length, owner_epoch, append_time_ms, base_index, skip_first, count, body_bytes,
        TopicId(topic_id.hex()),
    )  # fmt: skip


def decode_entry(
    data: Buffer, *, ledger_id: LedgerId, entry_id: EntryId, checksum: Checksum, topic_id: TopicId | None = None
) -> EntryHeader:
    """Read and verify one whole entry. topic_id: None: of any topic.

    Raises CorruptEntry unless it is intact and the expected one.
    """
    header = peek_header(data)
    require_topic(header, topic_id)
    if header.ledger_id != ledger_id or header.entry_id != entry_id:
        raise CorruptEntry(
            f"expected entry {ledger_id}:{entry_id}, got the bytes of {header.ledger_id}:{header.entry_id}",
            ledger_id=ledger_id,
            entry_id=entry_id,
        )
    if len(data) != HEADER_BYTES + header.body_bytes:
        raise CorruptEntry(
            f"entry {ledger_id}:{entry_id} has {len(data)} bytes, its header states {HEADER_BYTES + header.body_bytes}"
        )
    (crc,) = _CRC.unpack_from(data, 4)
    if checksum_of(data, checksum) != crc:
        raise CorruptEntry(f"entry {ledger_id}:{entry_id}: checksum mismatch", ledger_id=ledger_id, entry_id=entry_id)
    return header


def require_topic(header: EntryHeader, topic_id: TopicId | None) -> None:
    """An older ZooKeeper may give a ledger id again: the entries of another topic are never taken for those of this one
    (hazard ledger-id-given-twice). Raises CorruptEntry."""
    if topic_id is not None and header.topic_id != topic_id:
        raise CorruptEntry(
            f"entry {header.position} belongs to topic {header.topic_id}, and not to {topic_id}: its ledger id was "
            "given twice, so ZooKeeper is older than the data",
            ledger_id=header.ledger_id,
            entry_id=header.entry_id,
        )


def body_of(data: Buffer) -> memoryview:
    """The body of an entry, a slice without a copy."""
    return memoryview(data)[HEADER_BYTES:]


def check_reader(data: Buffer, version: int) -> None:
    """data: an entry of messages, for a client of this version. Raises UnknownFormat for one that the client cannot
    read: it would take the entry for damage (hazard format-of-a-later-version)."""
    if version < AS_IT_CAME_VERSION and (found := body_of(data)[_PAYLOAD_FORMAT_AT]) in AS_IT_CAME:
        client = PayloadFormat(found).name.capitalize()
        message = (
            f"entry {peek_header(data).position} has messages of a client of {client} (payload format {found}), which "
            f"this program cannot read: upgrade it to version {AS_IT_CAME_VERSION} or later"
        )
        raise UnknownFormat(message, payload_format=found)


def producer_id_of(data: Buffer) -> ProducerId:
    """Of an entry of messages."""
    return ProducerId(int.from_bytes(body_of(data)[8:16], "little"))


#: Numbers that a GIVEN_UP entry leaves out: more messages than one ledger can hold, so no number that a client received
#: before the loss is given to another message. 2**32 such losses fit into an index.
GIVEN_UP_INDEXES = 1 << 31
#: By how much it raises the generation of each producer: more grants than one ledger holds.
GIVEN_UP_GENERATIONS = 1 << 16


class GivenUp(NamedTuple):
    """The body of the entry that follows a ledger which an operator has ended without its lost members (hazard
    index-given-twice).

    ledger_id, first_entry: entries of that ledger from `first_entry` on may have been acknowledged, and are gone.
    by: the operator.
    """

    ledger_id: LedgerId
    first_entry: EntryId
    by: str


_GIVEN_UP = Struct("<QQH")


def encode_given_up(given_up: GivenUp) -> bytes:
    """Layout: ledger id 8, first entry 8, role bytes 2, then the role in UTF-8."""
    by = given_up.by.encode()
    return _GIVEN_UP.pack(given_up.ledger_id, given_up.first_entry, len(by)) + by


def decode_given_up(body: Buffer) -> GivenUp:
    """Raises CorruptEntry when the body is none."""
    if len(body) < _GIVEN_UP.size:
        raise CorruptEntry("a GivenUp body is too short")
    ledger_id, first_entry, by_bytes = _GIVEN_UP.unpack_from(body)
    if len(body) != _GIVEN_UP.size + by_bytes:
        raise CorruptEntry("a GivenUp body contradicts its length")
    try:
        by = bytes(body[_GIVEN_UP.size :]).decode()
    except UnicodeDecodeError as error:
        raise CorruptEntry("the role in a GivenUp body is not UTF-8") from error
    return GivenUp(LedgerId(ledger_id), EntryId(first_entry), by)


_OPENED = Struct("<16sQIBBHq16sH")
_NO_INSTANCE_BYTES = bytes(INSTANCE_ID_BYTES)


def instance_to_bytes(instance_id: InstanceId) -> bytes:
    """16 bytes, zeros for NO_INSTANCE."""
    return instance_id or _NO_INSTANCE_BYTES


def instance_from_bytes(data: bytes) -> InstanceId:
    """The inverse of `instance_to_bytes`."""
    return NO_INSTANCE if data == _NO_INSTANCE_BYTES else InstanceId(data)


class SequenceMode(IntEnum):
    """MONOTONIC: application-chosen ids with holes; CONTIGUOUS: +1 each; EPOCHED: +1 each within an epoch, and a higher
    epoch begins at its number 0 (see `epoched_ids`)."""

    MONOTONIC = 1
    CONTIGUOUS = 2
    EPOCHED = 3


_MODES = frozenset(SequenceMode)


class ProducerOpened(NamedTuple):
    """The body of a grant. persisted: the producer's mark when the grant was appended.

    instance_id: the instance that holds the grant. role: of the opener; empty without authentication. growths: how
    often the partitioned topic had got more partitions when the name was first opened, 0 to 255: messages of the name
    are routed by the number of partitions of that time (hazard resent-to-another-partition). lifetime_ms: of a lease;
    0: the producer lives on as before, a new one as the policies say. address: host:port from which the opener came;
    None: unknown.
    """

    topic_id: TopicId
    name: str
    producer_id: ProducerId
    generation: Generation
    mode: SequenceMode
    persisted: SequenceId
    instance_id: InstanceId = NO_INSTANCE
    role: str = ""
    growths: int = 0
    lifetime_ms: int = 0
    address: str | None = None


_LIFETIME = Struct("<Q")
#: In the byte of the mode: the lifetime follows; the address follows.
_LEASED, _WITH_ADDRESS = 0x80, 0x40
ADDRESS_BYTES_MAX = 255


def encode_opened(grant: ProducerOpened) -> bytes:
    """Layout: topic id 16, producer id 8, generation 4, mode 1, growths 1, role bytes 2, persisted 8, instance id 16
    (zeros: none), name bytes 2, then the name and the role in UTF-8. A lease has 0x80 in its mode, and 8 more bytes:
    the lifetime. With an address it has 0x40, and address bytes 1 and the address follow at the end."""
    name, role = grant.name.encode(), grant.role.encode()
    head = _OPENED.pack(
        bytes.fromhex(grant.topic_id), grant.producer_id, grant.generation,
        grant.mode | (_LEASED if grant.lifetime_ms else 0) | (0 if grant.address is None else _WITH_ADDRESS),
        grant.growths, len(role),
        grant.persisted, instance_to_bytes(grant.instance_id), len(name),
    )  # fmt: skip
    tail = _LIFETIME.pack(grant.lifetime_ms) if grant.lifetime_ms else b""
    if grant.address is not None:
        address = grant.address.encode()
        tail += bytes((len(address),)) + address
    return head + name + role + tail


def decode_opened(body: Buffer) -> ProducerOpened:
    """Raises CorruptEntry when the body is not a grant."""
    if len(body) < _OPENED.size:
        raise CorruptEntry("a ProducerOpened body is too short")
    topic_id, pid, generation, mode, growths, role_bytes, persisted, instance, name_bytes = _OPENED.unpack_from(body)
    leased, located, mode = mode & _LEASED, mode & _WITH_ADDRESS, mode & ~(_LEASED | _WITH_ADDRESS)
    end_of_name = _OPENED.size + name_bytes
    end_of_role = end_of_name + role_bytes
    end = end_of_lifetime = end_of_role + (_LIFETIME.size if leased else 0)
    if located and len(body) > end:
        end += 1 + body[end]
    if len(body) != end or (located and end == end_of_lifetime) or mode not in _MODES:
        raise CorruptEntry("a ProducerOpened body contradicts its lengths or mode")
    try:
        name = bytes(body[_OPENED.size : end_of_name]).decode()
        role = bytes(body[end_of_name:end_of_role]).decode()
        address = bytes(body[end_of_lifetime + 1 :]).decode() if located else None
    except UnicodeDecodeError as error:
        raise CorruptEntry("a name in a ProducerOpened body is not UTF-8") from error
    return ProducerOpened(
        TopicId(topic_id.hex()), name, pid, generation, SequenceMode(mode), persisted, instance_from_bytes(instance),
        intern(role), growths, _LIFETIME.unpack_from(body, end_of_role)[0] if leased else 0, address,
    )  # fmt: skip
