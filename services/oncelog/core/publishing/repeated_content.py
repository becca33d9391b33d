"""Whether a duplicate has the content of the batch that is stored under its ids.

The owner keeps no content. Of the header of each recent batch it remembers the checksum, the generation and the publish
time. A batch that is sent again differs in the last two, if nothing else. So the checksum is computed of the repeated
batch with the generation and the time of the stored one, and compared. This costs a write nothing, and a duplicate one
pass over its bytes.

    True     the content differs: at least one message of the batch is another one (hazard other-content)
    False    the same bytes, as far as a checksum of 32 bits can tell
    None     unknown, which is not equal: the stored batch is forgotten, has other ids than the repeated one, was stored
             in part, or one of the two is compressed (equal content may be compressed to different bytes, as by
             another version of the library: a difference would be a false alarm, so nothing is concluded) or in
             chunks (a retry names other chunks). Also where bytes of a gateway's client differ: one of Pulsar may
             write the properties of a message in another order (hazard other-order-of-properties), one of Kafka may
             compress again
"""

from oncelog.core.formats.batch import AS_IT_CAME, IN_CHUNKS, BatchHeader, Buffer, Checksum, checksum_as_of
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.recent_batches import RecentBatch


def with_content(known: Outcome, table: DedupTable, batch: BatchHeader, data: Buffer, checksum: Checksum) -> Outcome:
    """The results of a batch without new messages, with `content_differs` where one stored batch has all of its ids."""
    first, *others = known
    if others or first.kind is not ResultKind.DUPLICATE or first.position is None:
        return known
    recent = table.remembered(batch.producer_id, first.position)
    return (first._replace(content_differs=content_differs(recent, batch, data, checksum)),)


def content_differs(recent: RecentBatch | None, batch: BatchHeader, data: Buffer, checksum: Checksum) -> bool | None:
    """recent: the batch in which all ids of the repeated one were found. batch, data: the repeated one."""
    if (
        recent is None
        or not recent.generation
        or batch.compression != Compression.NONE
        or batch.payload_format in IN_CHUNKS
        or (recent.first, recent.last, recent.count) != (batch.first, batch.last, batch.count)
    ):
        return None
    repeated = checksum_as_of(
        data, generation=recent.generation, publish_time_ms=recent.publish_time_ms, checksum=checksum
    )
    if repeated != recent.checksum and batch.payload_format in AS_IT_CAME:
        return None
    return repeated != recent.checksum
