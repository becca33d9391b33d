"""Record batches with the checksum that clients write."""

from collections.abc import Sequence

from crc32c import crc32c

from tests.core.kafka_batches import NONE, Sent, framed, numbered, packed, records

__all__ = ["Sent", "batch_of", "made_of", "numbered"]


def batch_of(sent: Sequence[Sent], *, codec: int = NONE, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """producer: its id, epoch and base sequence."""
    return made_of(packed(codec, records(sent)), len(sent), attributes=codec, producer=producer)


def made_of(
    payload: bytes,
    count: int,
    *,
    attributes: int = NONE,
    magic: int = 2,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    return framed(payload, count, attributes=attributes, magic=magic, producer=producer, by=crc32c)
