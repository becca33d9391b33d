"""Batches that a gateway has packed itself, and their results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.client.values.results import AnsweredRange, TopicPartition
from oncelog.core.errors import InvalidSequenceId, OncelogError
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.ids import SEQUENCE_ID_MAX
from oncelog.core.sdk.producer.sequence_ids import BatchIds


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """One batch: `payload` is stored as it is, in `payload_format`.

    ids: of its messages, as `pack_sequence_ids` gives them. publish_time_ms: of the header, ms since 1970; the owner
    compares a repeated batch with the stored one apart from it. unit: the ids are only the first and the last one that
    the batch is known by, and the log judges it as a whole (`core.formats.batch`).
    """

    payload: bytes
    count: int
    ids: BatchIds
    payload_format: PayloadFormat
    publish_time_ms: int
    unit: bool = False

    def check(self) -> None:
        """Raises InvalidSequenceId when ids and count contradict each other."""
        first, last, deltas = self.ids
        holes = 0 if self.unit else last - first + 1 - self.count
        if self.count < 1 or not 0 <= first <= last <= SEQUENCE_ID_MAX or holes < 0 or bool(holes) != bool(deltas):
            message = f"sequence ids {first}..{last} contradict a count of {self.count}"
            raise InvalidSequenceId(message, field="ids", limit=SEQUENCE_ID_MAX)


class PackedResult(NamedTuple):
    """What the log has decided about one batch.

    ranges: of consecutive messages with the same answer, in order; their sizes add up to the count of the batch. Of a
    range, `stored` has kind, position and content_differs; stale messages have the error StaleSequence instead. A batch
    of stale messages only fails with it. A chunk whose message is not stored has the kind CHUNK.
    `resent`: a duplicate only because the SDK repeated this very batch after a lost answer.
    """

    topic: TopicPartition
    ids: BatchIds
    ranges: tuple[AnsweredRange, ...]


#: Called once: with a result, or with the error of the whole batch. Its `stored` says what is known.
PackedCallback = Callable[[PackedResult | None, OncelogError | None], None]
