"""A topic's log on the storage nodes: its decoded entries, and the copies of closed ledgers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import (
    BatchHeader,
    Buffer,
    Checksum,
    PayloadFormat,
    decode_batch,
    deltas_of,
    order_ids,
    payload_of,
    peek_batch,
)
from oncelog.core.formats.chunks import ChunkNames, decode_chunk_names
from oncelog.core.formats.entry import (
    GIVEN_UP_INDEXES,
    EntryHeader,
    EntryKind,
    GivenUp,
    ProducerOpened,
    body_of,
    decode_entry,
    decode_given_up,
    decode_opened,
    peek_header,
)
from oncelog.core.formats.head import LedgerHead, decode_head
from oncelog.core.formats.payload import shown_columns
from oncelog.core.formats.producers_aged import ProducersAged, decode_aged
from oncelog.core.ids import EntryId, Incarnation, Position
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.verify.violation import Violation


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """One entry, as the head of its ledger, with a grant, with what was given up, with who aged, as a chunk, or with
    batch, ids and values.

    The first header.skip_first messages do not count. A message in chunks has an empty value, and names them in chunks;
    a null value and an encrypted one are empty, too. ids: as `order_ids` gives them. values: empty if they were not
    decoded.
    """

    header: EntryHeader
    data: Buffer
    grant: ProducerOpened | None = None
    batch: BatchHeader | None = None
    ids: Sequence[int] = ()
    values: Sequence[bytes] = ()
    given_up: GivenUp | None = None
    aged: ProducersAged | None = None
    #: of a chunk: its batch
    chunk: BatchHeader | None = None
    chunks: ChunkNames | None = None
    head: LedgerHead | None = None

    @property
    def position(self) -> Position:
        return self.header.position


def count_of(entry: LoggedEntry) -> int:
    """The count that the entry's header must state."""
    if entry.given_up is not None:
        return GIVEN_UP_INDEXES
    return 0 if entry.batch is None else entry.batch.count - entry.header.skip_first


def parse_entry(data: bytes, position: Position, checksum: Checksum, *, keeps_values: bool = True) -> LoggedEntry:
    """Raises Violation if the bytes are not a whole, intact entry of a topic's log.

    keeps_values False: the payload is checked, too, but no value is copied.
    """
    try:
        header = decode_entry(data, ledger_id=position.ledger_id, entry_id=position.entry_id, checksum=checksum)
        body = body_of(data)
        control = _control(header, data)
        if control is not None:
            return control
        if header.kind == EntryKind.CHUNK:
            return LoggedEntry(header, data, chunk=decode_batch(body, checksum))
        batch = decode_batch(body, checksum)
        payload = payload_of(batch, body)
        columns = shown_columns(batch, payload)
        values = columns.values.to_list() if keeps_values else ()
        chunks = decode_chunk_names(payload) if batch.payload_format == PayloadFormat.CHUNKED else None
        ids = order_ids(batch, deltas_of(batch, body))
        return LoggedEntry(header, data, batch=batch, ids=ids, values=values, chunks=chunks)
    except OncelogError as error:
        raise Violation("entry bytes", f"entry {position}: {error.message}") from error


def parse_head(data: Buffer, position: Position) -> LoggedEntry:
    """An entry that is cut after its id deltas: its batch and ids, without values. The storage node that has sent it
    has verified the whole one. Raises Violation."""
    try:
        header = peek_header(data)
        control = _control(header, data)
        if control is not None:
            return control
        body = body_of(data)
        batch = peek_batch(body)
        if header.kind == EntryKind.CHUNK:
            return LoggedEntry(header, data, chunk=batch)
        return LoggedEntry(header, data, batch=batch, ids=order_ids(batch, deltas_of(batch, body)))
    except OncelogError as error:
        raise Violation("entry bytes", f"entry {position}: {error.message}") from error


def _control(header: EntryHeader, data: Buffer) -> LoggedEntry | None:
    """None: an entry of messages, or of a chunk. Raises CorruptEntry, and Violation for what no log has."""
    body = body_of(data)
    match header.kind:
        case EntryKind.PRODUCER_OPENED:
            return LoggedEntry(header, data, grant=decode_opened(body))
        case EntryKind.PRODUCERS_AGED:
            return LoggedEntry(header, data, aged=decode_aged(body))
        case EntryKind.GIVEN_UP:
            return LoggedEntry(header, data, given_up=decode_given_up(body))
        case EntryKind.HEAD_LOG:
            return LoggedEntry(header, data, head=decode_head(body))
        case EntryKind.MESSAGES | EntryKind.CHUNK:
            return None
    raise Violation("entry kind", f"entry {header.position} of a log is of kind {header.kind}")


def check_copies(metadata: LedgerMetadata, copies: Mapping[Incarnation, Mapping[EntryId, bytes]]) -> list[bytes]:
    """Check that every entry of a CLOSED ledger is on at least Qa of its members, and that all copies are equal. Of a
    ledger that an operator ended without members, it is on those that are left, if they are fewer.

    copies: {holder: {entry: bytes}} of durable entries. Returns the bytes of the entries in order. Raises Violation.
    """
    name = metadata.ledger_id
    if metadata.state is not LedgerState.CLOSED:
        raise Violation("closed ledgers", f"ledger {name} is {metadata.state.value}")
    others = [holder for holder, held in copies.items() if held and holder not in metadata.members]
    if others:
        raise Violation("holders", f"ledger {name} is held by {others}, its members are {metadata.members}")
    entries: list[bytes] = []
    for number in range(metadata.end + 1):
        found = [held[EntryId(number)] for held in copies.values() if number in held]
        if len(found) < min(metadata.ack_quorum, max(1, len(metadata.survivors))):
            raise Violation("copies", f"entry {name}:{number} of a CLOSED ledger has {len(found)} copies")
        if any(data != found[0] for data in found):
            raise Violation("equal copies", f"copies of entry {name}:{number} differ")
        entries.append(found[0])
    return entries
