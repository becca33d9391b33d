"""A producer of the SDK, in the form that a door needs for Kafka's clients (`kafka.ports.ProducerPort`).

Its name is made from the producer id of the client, so it is the same at every door: the owner of the partition goes on
with what another door has sent, and ends that door's session. A batch without numbers has a producer of this door: the
log then knows the door's own repetitions, and no others.
"""

import secrets
import time
from functools import partial

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import PackedEntry, PackedProducer, PackedResult, create_packed_producer
from oncelog.core.access import Caller
from oncelog.core.errors import InvalidBatch, OncelogError, SequenceGap, StaleSequence
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.ids import SequenceId
from oncelog.core.names import KAFKA, TopicName
from oncelog.core.sdk.producer.sequence_ids import BatchIds
from oncelog_doors.core.kafka.batch_checks import CheckedBatch
from oncelog_doors.core.kafka.batch_numbers import GivenIds
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.kafka.ports import Decided, Decision, NotStored, StoredAt, StoredPlace

_INSTANCE_BYTES = 16
#: Of batches that the owner refuses; others as `code_of`.
_CODES: tuple[tuple[type[OncelogError], ErrorCode], ...] = (
    (SequenceGap, ErrorCode.NOT_ENOUGH_REPLICAS),
    (StaleSequence, ErrorCode.INVALID_PRODUCER_EPOCH),
    (InvalidBatch, ErrorCode.INVALID_RECORD),
)


class KafkaProducer:
    """Of one partition. numbered: by a client."""

    def __init__(self, producer: PackedProducer, *, numbered: bool) -> None:
        self._producer, self._numbered = producer, numbered

    @property
    def mark(self) -> SequenceId | None:
        return self._producer.last_sequence_id if self._numbered else None

    def has_room(self, size: int) -> bool:
        return self._producer.has_room(size)

    async def room(self, size: int) -> None:
        await self._producer.room(size)

    def give(self, batch: CheckedBatch, ids: GivenIds, decided: Decided) -> None:
        now_ms = time.time_ns() // 1_000_000
        numbers = BatchIds(ids.first, ids.last)
        entry = PackedEntry(batch.records, batch.head.count, numbers, PayloadFormat.KAFKA, now_ms)
        try:
            self._producer.send_nowait(entry, partial(self._answered, decided))
        except OncelogError as error:
            self._answered(decided, None, error)

    def _answered(self, decided: Decided, result: PackedResult | None, error: OncelogError | None) -> None:
        if result is not None:
            decided(decision_of(result))
        elif self._producer.failure is not None:
            decided(None)
        else:
            assert error is not None, "a batch has a result or an error"
            decided(_refused(error))

    async def ended(self) -> OncelogError:
        return await self._producer.ended()

    async def close(self) -> None:
        await self._producer.close(gives_up_name=False)


async def open_kafka_producer(
    client: AsyncClient, log: TopicName, caller: Caller, producer_id: int | None
) -> KafkaProducer:
    """As `ClusterPort.open_producer`. client: with a token of a superuser, if the cluster wants tokens."""
    if producer_id is None:  # under a name that the log assigns, and forgets after a day
        return KafkaProducer(await create_packed_producer(client, str(log), on_behalf_of=caller), numbered=False)
    producer = await create_packed_producer(
        client,
        str(log),
        producer_name=f"{KAFKA}{producer_id}",
        sequence_mode="epoched",
        instance_id=producer_id.to_bytes(_INSTANCE_BYTES, "big"),
        # Later openings end earlier ones, whichever number they have.
        epoch=secrets.randbits(64),
        on_behalf_of=caller,
    )
    return KafkaProducer(producer, numbered=True)


def decision_of(result: PackedResult) -> Decision:
    """What the log has decided about a batch. All of its records are stored, or some of them were before."""
    for each in result.ranges:
        if each.error is not None:
            return _refused(each.error)
        if each.stored is not None and each.stored.content_differs:
            sentence = "another batch is stored under the numbers of this one"
            return NotStored(ErrorCode.INVALID_RECORD, sentence)
    first = result.ranges[0].stored
    if first is None or first.position is None:
        return StoredAt(None)
    return StoredAt(StoredPlace(first.position, first.offset, first.index))


def _refused(error: OncelogError) -> NotStored:
    own = (code for kind, code in _CODES if isinstance(error, kind))
    return NotStored(next(own, code_of(error)), error.cause)
