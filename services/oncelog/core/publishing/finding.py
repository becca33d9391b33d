"""Where the message of a producer name and a sequence id is, from what the owner remembers and one entry of the log.

    STORED                   in the entry at `position`
    IN_FLIGHT                handed to the log as the entry at `position`, not durable yet
    NOT_STORED               above the highest id that was handed to the log: a batch with it would be stored
    NEVER_STORED             between stored ids, and in none of their batches: a batch with it would be refused
    OLDER_THAN_REMEMBERED    at or below `floor`: the producer has stored higher ids, and more is not remembered
    TRIMMED                  it was stored, and retention has deleted its entry
    UNKNOWN                  within a batch with holes whose ids only its entry knows, and nobody gives the entry now;
                             or within a unit (see `core.formats.batch`) that is encrypted
    NOT_FOUND                older than what is remembered, and not in what is kept of the log
    UNKNOWN_PRODUCER         no producer has this name: none was ever opened, or it has expired

Rules
- Dedup decides: the same batches, the same floor and the same `locate` that a batch with this id would meet.
- An entry that the memory names is read before it is reported. It must hold the id at that place.
- Looking changes nothing: an idle producer stays idle.
- Of a batch with holes, a new owner knows the first and the last id alone. If its entry is deleted, nobody knows the
  ids between them any more, and dedup refuses them as not verified: `floor` is then its last id.
- While deduplication is disabled, an id may be stored more than once. The place is that of the copy remembered.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.formats.batch import BatchHeader, Buffer, decode_ids, deltas_of, payload_of, peek_batch
from oncelog.core.formats.entry import EntryHeader, SequenceMode, body_of, peek_header
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.formats.payload import open_payload
from oncelog.core.ids import NO_SEQUENCE, Position, ProducerId, SequenceId
from oncelog.core.publishing.dedup_table import DedupTable, KnownIds
from oncelog.core.publishing.recent_batches import NeedIds, RecentBatch, locate


class FoundState(StrEnum):
    """See above."""

    STORED = "stored"
    IN_FLIGHT = "in_flight"
    NOT_STORED = "not_stored"
    NEVER_STORED = "never_stored"
    OLDER_THAN_REMEMBERED = "older_than_remembered"
    TRIMMED = "trimmed"
    UNKNOWN = "unknown"
    NOT_FOUND = "not_found"
    UNKNOWN_PRODUCER = "unknown_producer"


@dataclass(frozen=True, slots=True)
class Found:
    """The answer. accepted: the highest id that was handed to the log; persisted: that is durable; floor: ids at or
    below it are older than what is remembered; all three -1: none.

    batch: while STORED, the batch at `position`, if only its entry knows whether it holds the id; batch_index is then
    None. index, append_time_ms: of the message, once its entry was read.
    """

    state: FoundState
    producer_id: ProducerId | None = None
    mode: SequenceMode | None = None
    accepted: SequenceId = NO_SEQUENCE
    persisted: SequenceId = NO_SEQUENCE
    floor: SequenceId = NO_SEQUENCE
    position: Position | None = None
    batch_index: int | None = None
    batch: RecentBatch | None = None
    index: int | None = None
    append_time_ms: int | None = None


def find(table: DedupTable, name: str, sequence_id: SequenceId) -> Found:
    """What the memory says. Of a STORED one, read the entry at its position, and ask `in_entry`."""
    pid = table.producer_id_of(name)
    if pid is None:
        return Found(FoundState.UNKNOWN_PRODUCER)
    producer = table.state.producers.peek(pid)
    if producer is None:
        # Its first grant is in flight. Ids up to its first mark count as stored.
        accepted, mode = table.accepted_of(pid), table.mode_of(pid)
        persisted, known = NO_SEQUENCE, KnownIds([], accepted, table.state.position)
    else:
        accepted = table.accepted_of(pid) if table.in_flight(pid) else producer.persisted
        persisted, mode, known = producer.persisted, producer.mode, table.known_ids(producer)
    found = Found(FoundState.NOT_STORED, pid, mode, accepted, persisted, known.floor)
    if sequence_id > accepted:
        return found
    unit = next((each for each in known.batches if each.unit and each.first <= sequence_id <= each.last), None)
    if unit is not None and sequence_id > known.floor:
        state = FoundState.STORED if unit.position <= table.state.position else FoundState.IN_FLIGHT
        return replace(found, state=state, position=unit.position, batch=unit)
    located = locate([sequence_id], known.batches, floor=known.floor, mode=mode)
    if isinstance(located, NeedIds):
        return _in_batch(found, sequence_id, next(each for each in known.batches if each.position == located.position))
    (result,) = located
    if result.kind is ResultKind.STALE_SEQUENCE and sequence_id > known.floor:
        return replace(found, state=FoundState.NEVER_STORED)
    if result.position is None:
        return replace(found, state=FoundState.OLDER_THAN_REMEMBERED)
    durable = result.position <= table.state.position
    state = FoundState.STORED if durable else FoundState.IN_FLIGHT
    return replace(found, state=state, position=result.position, batch_index=result.offset)


def _in_batch(found: Found, sequence_id: SequenceId, batch: RecentBatch) -> Found:
    """Of a batch whose ids only its entry knows, but the first and the last one."""
    found = replace(found, state=FoundState.STORED, position=batch.position)
    if sequence_id == batch.first:
        return replace(found, batch_index=batch.offset)
    if sequence_id == batch.last:
        return replace(found, batch_index=batch.offset + batch.count - 1)
    return replace(found, batch=batch)


def in_entry(found: Found, sequence_id: SequenceId, entry: Buffer) -> Found:
    """The STORED one as its entry says, which is given whole or cut after the id deltas, but whole if it is a unit;
    NEVER_STORED if only the entry knew, and it lacks the id.

    Raises CorruptEntry for an entry that contradicts what the owner remembers.
    """
    header, body = peek_header(entry), body_of(entry)
    batch = peek_batch(body)
    ids = _ids_of_unit(batch, body, header) if batch.unit else decode_ids(batch, deltas_of(batch, body))
    if ids is None:
        return replace(found, state=FoundState.UNKNOWN, batch=None)
    at = bisect_left(ids, sequence_id, header.skip_first)
    held = at < len(ids) and ids[at] == sequence_id
    if not held and found.batch_index is None and batch.producer_id == found.producer_id:
        return replace(found, state=FoundState.NEVER_STORED, position=None, batch=None)
    if not held or batch.producer_id != found.producer_id or found.batch_index not in (None, at):
        raise CorruptEntry(
            f"entry {header.position} does not hold sequence id {sequence_id} of producer {found.producer_id} as its "
            f"message {found.batch_index}, where the owner remembers it"
        )
    index = header.base_index + at - header.skip_first
    return replace(found, batch=None, batch_index=at, index=index, append_time_ms=header.append_time_ms)


def _ids_of_unit(batch: BatchHeader, body: Buffer, header: EntryHeader) -> Sequence[int] | None:
    """None: the entry is encrypted."""
    try:
        return open_payload(batch, payload_of(batch, body)).ids
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {header.position} cannot be read: {error}") from error


def trimmed(found: Found) -> Found:
    """The STORED one whose entry was trimmed. If only the entry knew its ids, nothing is left that does: `batch` then
    says what is known."""
    if found.batch is not None:
        return replace(found, state=FoundState.OLDER_THAN_REMEMBERED, position=None, floor=found.batch.last)
    return replace(found, state=FoundState.TRIMMED)


def not_given(found: Found) -> Found:
    """The STORED one whose entry nobody gives now. If only the entry knows its ids, the answer is not known."""
    return found if found.batch is None else replace(found, state=FoundState.UNKNOWN, position=None)
