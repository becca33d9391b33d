"""Kafka's rule for what is a duplicate, as its broker has it (ProducerStateManager, ProducerAppendInfo).

A partition keeps for each producer id its epoch, the numbers of its last five batches, and the time of the last one. A
batch is judged by its epoch and numbers:

    a number below 0                               refused, 87
    nothing kept of the producer id                stored, whatever its number is (since KIP-360)
    one of the five, with the same numbers         a duplicate, with the offset of the first copy
    a lower epoch                                  refused, 47
    a higher epoch, from number 0 on               stored; the five are forgotten
    the same epoch, from the next number on        stored; 0 comes after 2**31 - 1
    anything else                                  refused, 45

A broker that starts knows the last batch of each producer id alone: its snapshot has no more. A producer id is
forgotten when its last batch is a day old (producer.id.expiration.ms), by the time that the client has written into its
records. The broker looks for such ids when it starts, and every 10 minutes; here each second, so that a history is
short.
"""

from collections.abc import Iterable
from typing import NamedTuple

from oncelog_doors.core.kafka.error_codes import ErrorCode

BATCHES_KEPT = 5
EXPIRATION_MS = 24 * 3600 * 1000
SWEEP_MS = 1_000
_WRAP = 2**31


class Batch(NamedTuple):
    """As it came. time_ms: the largest of its records."""

    producer_id: int
    epoch: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    time_ms: int

    @property
    def last(self) -> int:
        return (self.first + self.count - 1) % _WRAP


class Stored(NamedTuple):
    """number: of the batch among those of the partition."""

    number: int


class Duplicate(NamedTuple):
    """number: of the first copy."""

    number: int


class Refused(NamedTuple):
    code: ErrorCode


Verdict = Stored | Duplicate | Refused


class _Kept(NamedTuple):
    batch: Batch
    number: int


class KafkaRule:
    """Of one partition."""

    def __init__(self, now_ms: int) -> None:
        self._kept: dict[int, list[_Kept]] = {}
        self._count = 0
        self._swept_ms = now_ms

    @classmethod
    def recovered(cls, batches: Iterable[Batch], now_ms: int) -> "KafkaRule":
        """Of a broker that starts. batches: of the partition, in order."""
        rule = cls(now_ms)
        for batch in batches:
            rule._kept[batch.producer_id] = [_Kept(batch, rule._count)]
            rule._count += 1
        rule._sweep(now_ms)
        return rule

    def judge(self, batch: Batch, now_ms: int) -> Verdict:
        """A batch comes; one that is stored is known from now on."""
        if now_ms >= self._swept_ms + SWEEP_MS:
            self._sweep(now_ms)
        if batch.first < 0:
            return Refused(ErrorCode.INVALID_RECORD)
        kept = self._kept.get(batch.producer_id, [])
        if kept:
            for each in kept:
                if each.batch[:4] == batch[:4]:
                    return Duplicate(each.number)
            last = kept[-1].batch
            if batch.epoch < last.epoch:
                return Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
            if batch.epoch > last.epoch:
                kept = []
            if batch.first != ((last.last + 1) % _WRAP if kept else 0):
                return Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._kept[batch.producer_id] = [*kept, _Kept(batch, self._count)][-BATCHES_KEPT:]
        self._count += 1
        return Stored(self._count - 1)

    def _sweep(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        for producer_id, kept in list(self._kept.items()):
            if now_ms - kept[-1].batch.time_ms >= EXPIRATION_MS:
                del self._kept[producer_id]
