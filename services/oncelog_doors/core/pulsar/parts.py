"""Parts of an entry: the messages of it that are meant for one consumer, as a batch of their own."""

from oncelog.core.acks.changes import IndexRange
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch


def can_be_cut(raw: RawBatch) -> bool:
    """Whether a part of an entry can be made: not of an encrypted one, of which consumers get a mask instead. Raises
    InvalidBatch."""
    raise NotImplementedError


def part_of(raw: RawBatch, sends: tuple[IndexRange, ...], bytes_max: int) -> Delivery:
    """As `deliveries.delivery_of`, of these messages alone (indexes of the topic, ascending, all of this entry): a batch
    also if it is one message. `last_index` is None unless they are one run. Each message has the property
    `oncelog.index`. Raises InvalidBatch, MessageTooLarge, CompressionUnavailable."""
    raise NotImplementedError
