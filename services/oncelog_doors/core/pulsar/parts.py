"""Parts of an entry: the messages of it that are meant for one consumer, as a batch of their own.

An entry is split where its keys belong to several consumers, or where some of its messages are acknowledged already. A
mask would say that, too, but most clients never acknowledge what they get with a mask (hazard mask-that-is-swallowed).
In a part messages count from 0, so its ids are not those of the entry: each message names its index in the topic as a
property, by which a program recognises a repeated message.
"""

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import PayloadFormat, payload_of
from oncelog_doors.core.pulsar.consuming.ack_sets import Ranges, size_of
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, bytes_of, delivery_of
from oncelog_doors.core.pulsar.entry_cuts import ENCRYPTION, has_field, split
from oncelog_doors.core.pulsar.message_ids import DeliveredId


def can_be_cut(raw: RawBatch) -> bool:
    """Whether a part of an entry can be made: not of an encrypted one, of which consumers get a mask instead. An entry
    of one message has no parts, so it is not looked at. Raises InvalidBatch."""
    if raw.batch.payload_format != PayloadFormat.PULSAR or raw.entry.count == 1:
        return True
    metadata, _payload = split(payload_of(raw.batch, raw.body))
    return not has_field(metadata, ENCRYPTION)


def part_of(raw: RawBatch, sends: Ranges, bytes_max: int) -> Delivery:
    """As `deliveries.delivery_of`, of these messages alone, which are a batch also if it is one message.

    sends: indexes of the topic, ascending, all of this entry; all of its messages are the entry as it is. Raises
    InvalidBatch, MessageTooLarge, CompressionUnavailable.
    """
    entry = raw.entry
    if not sends or sends[0].first < entry.base_index or sends[-1].last >= entry.next_index:
        raise InvariantViolated(f"messages {sends} are not in {entry.base_index}..{entry.next_index - 1}")
    count = size_of(sends)
    if count == entry.count:
        return delivery_of(raw, bytes_max)
    begins = entry.base_index - entry.skip_first
    kept = [index - begins for first, last in sends for index in range(first, last + 1)]
    metadata, payload = bytes_of(raw, kept, bytes_max, indexes_from=begins)
    last = sends[-1].last if len(sends) == 1 else None
    return Delivery(DeliveredId(entry.position), count, last, entry.append_time_ms, None, metadata, payload)
