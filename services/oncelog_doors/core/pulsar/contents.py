"""Whether what a client sends again is what the log holds: the key and the value of each message.

Properties, times and the way a batch is packed are not compared. A client that sends a message again may write its
properties in another order, in another batch, with another compression (hazard honest-replay-refused).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oncelog.core.formats.columns import Columns
from oncelog.core.formats.pulsar import PulsarMessages

#: Key, value, and whether the value is null.
Content = tuple[bytes | None, bytes, bool]


class SentAgain(NamedTuple):
    """Consecutive messages that were stored before. first: index in the batch that was sent. offset: index in the
    stored entry."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    offset: int


def same_content(sent: PulsarMessages, stored: Columns, run: SentAgain) -> bool | None:
    """None: only the producer can say, because one of the two is encrypted."""
    if sent.encryption is not None or stored.encryption is not None:
        return None
    if run.offset + run.count > len(stored.values):
        return False
    nulls = frozenset(sent.nulls)
    ours = _contents(sent.keys, sent.values, [i in nulls for i in range(sent.count)] if nulls else None, run.first)
    theirs = _contents(stored.keys, stored.values, stored.nulls, run.offset)
    return all(next(ours) == next(theirs) for _ in range(run.count))


def _contents(
    keys: Sequence[bytes | None] | None, values: Sequence[bytes | memoryview], nulls: Sequence[bool] | None, first: int
) -> Iterator[Content]:
    for index in range(first, len(values)):
        key = None if keys is None else keys[index]
        yield key, bytes(values[index]), False if nulls is None else nulls[index]
