"""Looks in the log for a sequence id that is older than what the owner remembers of its producer: any age that is
kept.

A bisection (`core.search.id_search`): some twenty looks of a few KiB find one id among millions, unless the producer is
rare in the log. It ends after a limit of bytes or time, and says so.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.core.delivery.events import ReadMessages, StoredEntry
from oncelog.core.errors import EntriesLost, UnreadableEntry
from oncelog.core.formats.batch import BatchHeader, peek_batch
from oncelog.core.formats.entry import body_of, peek_header
from oncelog.core.formats.payload import ids_within
from oncelog.core.ids import Position, ProducerId, SequenceId, SubscriptionNumber
from oncelog.core.search.id_search import IdSearch
from oncelog.topic_owner.shell.message_reads import MessageReads

#: A look reads so much, and ends after LOOK_BYTES without a message of the producer.
STEP_BYTES = 64 * 1024
LOOK_BYTES = 1 << 20
SEARCH_BYTES = 64 << 20
SEARCH_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Of one message."""

    position: Position
    batch_index: int
    index: int
    append_time_ms: int


@dataclass(frozen=True, slots=True)
class LookedUp:
    """place: None: it was not found. left: messages that were not looked at, so it may be among them; unreadable: those
    that no storage node gives now. first_index, end_index: of the log that was looked at."""

    place: Place | None
    left: int
    unreadable: int
    first_index: int
    end_index: int


async def look_up(
    reads: MessageReads, first_index: int, end_index: int, producer_id: ProducerId, sequence_id: SequenceId
) -> LookedUp:
    """Raises the errors of `MessageReads.read`, but those of entries that cannot be read."""
    search, unreadable, read_bytes = IdSearch(first_index, end_index, sequence_id), 0, 0
    began_s = asyncio.get_running_loop().time()
    place: Place | None = None
    while (at := search.next_index) is not None:
        if read_bytes >= SEARCH_BYTES or asyncio.get_running_loop().time() - began_s >= SEARCH_S:
            break
        looked_bytes, read = 0, at
        while looked_bytes < LOOK_BYTES and read < end_index:
            try:
                entries = (await reads.read(ReadMessages(SubscriptionNumber(0), read, bytes_max=STEP_BYTES))).entries
            except (UnreadableEntry, EntriesLost) as error:
                count = int(error.details["count"] or 0)
                unreadable += count
                read = max(read, int(error.details["first_index"] or 0)) + max(count, 1)
                break
            if not entries:
                read = end_index
                break
            looked_bytes += sum(len(entry.data) for entry in entries)
            found = _of_producer(entries, producer_id)
            if found is None:
                read = entries[-1].base_index + entries[-1].count
                continue
            entry, batch = found
            end = entry.base_index + entry.count
            if search.batch(min(at, entry.base_index), entry.base_index, end, batch.first, batch.last):
                place = _in(entry, batch, sequence_id)
            read = at
            break
        read_bytes += looked_bytes
        search.nothing(at, max(read, at))
    left = sum(part.end - part.first for part in search.left)
    return LookedUp(place, left, unreadable, first_index, end_index)


def _of_producer(entries: Sequence[StoredEntry], producer_id: ProducerId) -> tuple[StoredEntry, BatchHeader] | None:
    for entry in entries:
        batch = peek_batch(body_of(entry.data))
        if batch.producer_id == producer_id:
            return entry, batch
    return None


def _in(entry: StoredEntry, batch: BatchHeader, sequence_id: SequenceId) -> Place | None:
    ids = ids_within(batch, body_of(entry.data))
    if sequence_id not in ids[entry.skip_first :]:
        return None
    at = ids.index(sequence_id)
    index = entry.base_index + at - entry.skip_first
    return Place(entry.position, at, index, peek_header(entry.data).append_time_ms)
