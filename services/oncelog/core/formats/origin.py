"""Where the messages of a batch come from, if a mirror has copied them: the column ORIGIN of a payload.

One record for a batch, of packed fields (see `packed_fields`) but for the times, which are 8 bytes each:

    version 1, cluster id, topic id, partition + 1, ledger id, entry id, index in the entry of the first message, index
    in the topic of the first message, CRC32C of the source's batch, producer name (empty: stored without
    deduplication), generation, first sequence id, gaps between the sequence ids (none: dense), publish time, append
    time

A batch of a copy has messages of one batch of the source, consecutive in their topic. Its own sequence ids are their
indexes there. Processes that do not know the column skip it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from struct import Struct

from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.message_id import MessageId
from oncelog.core.formats.packed_fields import NUMBER_MAX, FieldReader, FieldWriter
from oncelog.core.ids import EntryId, LedgerId, Position, TopicId

VERSION = 1
_TIMES = Struct("<qq")


@dataclass(frozen=True, slots=True)
class Origin:
    """Of one copied message, in its first cluster.

    Attributes:
        cluster_id: of that cluster.
        message_id: the message's position in its topic there.
        index: the message's number in its topic there.
        producer_name: None for a message that was stored without deduplication.
        generation: of the producer's instance.
        sequence_id: the producer's id of the message.
        publish_time_ms, append_time_ms: the producer's and the topic owner's clock, ms since 1970 UTC.
        checksum: CRC32C of the batch that the message was stored in.
    """

    cluster_id: str
    message_id: MessageId
    index: int
    producer_name: str | None
    generation: int
    sequence_id: int
    publish_time_ms: int
    append_time_ms: int
    checksum: int


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """Of all messages of a batch. batch_index: in its entry, of the first one. first_index: in its topic, of the same.
    sequence_ids: ascending, one for each message."""

    cluster_id: str
    topic_id: TopicId
    partition: int
    position: Position
    batch_index: int
    first_index: int
    checksum: int
    producer_name: str | None
    generation: int
    sequence_ids: Sequence[int]
    publish_time_ms: int
    append_time_ms: int

    def of(self, number: int) -> Origin:
        """number: of the message in the batch of the copy, from 0."""
        return Origin(
            self.cluster_id,
            MessageId(self.topic_id, self.partition, *self.position, self.batch_index + number),
            self.first_index + number,
            self.producer_name,
            self.generation,
            self.sequence_ids[number],
            self.publish_time_ms,
            self.append_time_ms,
            self.checksum,
        )


def pack_origin(origin: BatchOrigin) -> bytes:
    """The content of the column."""
    fields = FieldWriter()
    fields.number(VERSION)
    fields.text(origin.cluster_id)
    fields.id(origin.topic_id)
    ids = origin.sequence_ids
    for number in (origin.partition + 1, *origin.position, origin.batch_index, origin.first_index, origin.checksum):
        fields.number(number)
    fields.text(origin.producer_name or "")
    fields.number(origin.generation)
    fields.number(ids[0])
    dense = ids[-1] - ids[0] == len(ids) - 1
    fields.numbers([] if dense else [after - before - 1 for before, after in pairwise(ids)])
    return bytes(fields.data) + _TIMES.pack(origin.publish_time_ms, origin.append_time_ms)


def unpack_origin(content: Buffer, count: int) -> BatchOrigin:
    """Raises InvalidBatch unless it is the origin of `count` messages."""
    fields = FieldReader(content)
    try:
        version = fields.number()
        if version != VERSION:
            raise CorruptEntry(f"version {version} is not known, only {VERSION}")
        cluster_id, topic_id = fields.text(), TopicId(fields.id())
        partition, ledger_id, entry_id, batch_index, first_index, checksum = (fields.number() for _ in range(6))
        name, generation, first = fields.text(), fields.number(), fields.number()
        gaps = fields.numbers()
        times = _TIMES.unpack(fields.bytes(_TIMES.size))
        fields.end()
        if gaps and len(gaps) != count - 1:
            raise CorruptEntry(f"{len(gaps) + 1} sequence ids for {count} messages")
        ids = list(accumulate((gap + 1 for gap in gaps), initial=first)) if gaps else range(first, first + count)
        if max(ids[-1], first_index + count, batch_index + count) > NUMBER_MAX:
            raise CorruptEntry("a number exceeds 63 bits")
    except CorruptEntry as error:
        raise InvalidBatch(f"the origin of a batch cannot be read: {error.message}", field="payload") from error
    position = Position(LedgerId(ledger_id), EntryId(entry_id))
    return BatchOrigin(
        cluster_id, topic_id, partition - 1, position, batch_index, first_index, checksum, name or None, generation,
        ids, *times,
    )  # fmt: skip
