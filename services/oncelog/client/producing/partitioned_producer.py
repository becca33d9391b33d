"""One producer over all partitions of a topic.

Where a message goes, so that a replay goes there again (hazard 23):

    key given                   the partition of the key's hash (`core.sdk.producer.routing`)
    no key, own sequence ids    sequence_id modulo the number of partitions
    neither                     the partitions in turn, one for each call; a list stays together

Each partition is a log with its own deduplication, under the same producer name. Messages of one partition are stored
in the order in which they were given.

When the topic gets more partitions, messages without a sequence id use them within a minute. Messages with a sequence
id of the application's own use the partitions that the topic had when the producer name was first opened: a message
that is sent again must reach the partition that has it, or it would be stored there and in a new one. The grant of the
first partition records that number (`growths` of ProducerOpened).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import PartitionWatch
from oncelog.client.producing.message_arguments import Key, check_lengths, plain_key
from oncelog.client.producing.pending_results import without_errors
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.producing.receivers import SendCallback
from oncelog.client.producing.send_buffer import Properties
from oncelog.client.producing.sender import ProducerOptions
from oncelog.client.values.results import BatchResult, RoutedBatchResult, SendResult
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.routing import partition_of
from oncelog.core.sdk.producer.sequence_ids import check_sequence_id, check_sequence_ids

#: Partitions that are opened at the same time.
OPENINGS_MAX = 64


class PartitionedProducer(AsyncProducer):
    """An AsyncProducer of a partitioned topic.

    An error that ends the producer of one partition, such as ProducerFenced, ends it for all partitions.
    """

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        """Raises InvalidArgument for options that only a single log can obey."""
        settings = options.settings
        if settings.mode is SequenceMode.CONTIGUOUS:
            message = f"sequence_mode 'contiguous' counts in one log, and {topic} is partitioned"
            raise InvalidArgument(f"{message}: use a partition, {topic}-partition-N", field="sequence_mode")
        if settings.initial_sequence_id is not None:
            message = f"initial_sequence_id belongs to one log, and {topic} is partitioned"
            raise InvalidArgument(f"{message}: use a partition, {topic}-partition-N", field="initial_sequence_id")
        self.topic = str(topic)
        self._topic = topic
        self._network = network
        self._options = options
        self._parts: list[AsyncProducer] = []
        #: the first so many partitions take messages with sequence ids of the application's own
        self._numbered = 0
        self._watch = PartitionWatch(topic, network, self._follow)
        self._turns = count()

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def producer_name(self) -> str:
        return self._parts[0].producer_name if self._parts else ""

    @property
    def last_sequence_id(self) -> int:
        """Raises InvalidArgument: going on behind the highest id of all partitions would lose what others lack."""
        message = f"{self.topic} has {len(self._parts)} partitions: use resume_sequence_id, or last_sequence_ids"
        raise InvalidArgument(message, field="last_sequence_id")

    @property
    def last_sequence_ids(self) -> tuple[int, ...]:
        return tuple(part.last_sequence_id for part in self._parts)

    @property
    def resume_sequence_id(self) -> int:
        """The lowest of `last_sequence_ids`, of the partitions that take messages with own sequence ids. What other
        partitions have behind it is recognized as a duplicate."""
        return min(self.last_sequence_ids[: self._numbered])

    @property
    def pending_bytes(self) -> int:
        return sum(part.pending_bytes for part in self._parts)

    @property
    def deduplication(self) -> bool:
        return all(part.deduplication for part in self._parts)

    @property
    def unverified_count(self) -> int:
        return sum(part.unverified_count for part in self._parts)

    @property
    def last_error(self) -> OncelogError | None:
        """The first of the partitions'."""
        return next((part.last_error for part in self._parts if part.last_error is not None), None)

    @property
    def failure(self) -> OncelogError | None:
        return next((part.failure for part in self._parts if part.failure is not None), None)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> SendResult:
        part = self._part_of(sequence_id, key)
        return await part.send(
            value, sequence_id=sequence_id, key=key, event_time_ms=event_time_ms, properties=properties
        )

    def send_nowait(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "asyncio.Future[SendResult]":
        part = self._part_of(sequence_id, key)
        return part.send_nowait(
            value, sequence_id=sequence_id, key=key, event_time_ms=event_time_ms, properties=properties
        )

    def send_async(
        self,
        value: Buffer,
        callback: SendCallback,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> None:
        part = self._part_of(sequence_id, key)
        part.send_async(
            value, callback, sequence_id=sequence_id, key=key, event_time_ms=event_time_ms, properties=properties
        )

    def _part_of(self, sequence_id: int | None, key: Key | None) -> AsyncProducer:
        self._check_open()
        number = self._route(sequence_id, key)
        return self._parts[next(self._turns) % len(self._parts) if number is None else number]

    def _check_open(self) -> None:
        failure = self.failure
        if failure is not None:
            raise failure.of_send(stored=False)

    async def send_many(
        self,
        values: Sequence[Buffer],
        *,
        sequence_ids: Sequence[int] | None = None,
        keys: Sequence[Key | None] | None = None,
        event_times_ms: Sequence[int | None] | None = None,
        properties: Sequence[Properties | None] | None = None,
    ) -> BatchResult:
        self._check_open()
        check_lengths(values, sequence_ids, keys, event_times_ms, properties)
        columns: dict[str, Sequence[object] | None] = {
            "sequence_ids": None if sequence_ids is None else check_sequence_ids(sequence_ids),
            "keys": keys,
            "event_times_ms": event_times_ms,
            "properties": properties,
        }
        turn = next(self._turns) % len(self._parts)
        if sequence_ids is None and keys is None:
            return await self._send_part(turn, values, columns)
        places: list[tuple[int, int]] = []
        lists: dict[int, list[int]] = {}
        for index in range(len(values)):
            sequence_id = None if sequence_ids is None else sequence_ids[index]
            number = self._route(sequence_id, None if keys is None else keys[index])
            indexes = lists.setdefault(turn if number is None else number, [])
            places.append((turn if number is None else number, len(indexes)))
            indexes.append(index)
        if len(lists) <= 1:
            return await self._send_part(next(iter(lists), turn), values, columns)
        sends = [
            self._send_part(number, [values[i] for i in indexes], {
                name: None if column is None else [column[i] for i in indexes] for name, column in columns.items()
            })
            for number, indexes in lists.items()
        ]  # fmt: skip
        answers = await asyncio.gather(*sends, return_exceptions=True)
        parts: dict[int, BatchResult] = {}
        for number, answer in zip(lists, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, OncelogError) or answer.result is None:
                    raise answer
                parts[number] = answer.result
            else:
                parts[number] = answer
        return without_errors(RoutedBatchResult(places, parts))

    async def _send_part(
        self, number: int, values: Sequence[Buffer], columns: Mapping[str, Sequence[object] | None]
    ) -> BatchResult:
        return await self._parts[number].send_many(values, **columns)  # type: ignore[arg-type]  # as the caller gave them

    async def all_answered(self) -> None:
        await asyncio.gather(*(part.all_answered() for part in self._parts))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int | None) -> None:
        """Open all partitions, the first one first: of two instances, the one that gets it gets the others."""
        counts = await self._watch.begin(timeout_ms)
        share = max(self._options.batch_bytes_max, self._options.pending_bytes_max // counts.now)
        settings = replace(self._options.settings, growths=len(counts.former))
        self._options = replace(self._options, settings=settings, pending_bytes_max=share)
        first = self._new_part(0)
        self._parts = [first]
        try:
            await first.open(timeout_ms)
            if counts.after(first.growths) is None:  # it has grown since the look-up
                counts = await self._watch.begin(timeout_ms)
            self._numbered = counts.after(first.growths) or counts.now
            self._options = replace(self._options, settings=replace(settings, name=first.producer_name))
            self._parts += [self._new_part(number) for number in range(1, counts.now)]
            await _open_all(self._parts[1:], timeout_ms)
        except BaseException:
            await self.close(flush=False)
            raise
        self._watch.start(counts)

    def _new_part(self, number: int) -> AsyncProducer:
        return AsyncProducer(replace(self._topic, partition=number), self._options, self._network)

    async def _follow(self, counts: PartitionCounts) -> None:
        """Use the partitions that the topic has got, for messages without a sequence id."""
        parts = [self._new_part(number) for number in range(len(self._parts), counts.now)]
        try:
            await _open_all(parts, None)
        except BaseException:
            await asyncio.gather(*(part.close(flush=False) for part in parts))
            raise
        self._parts += parts

    async def close(self, *, flush: bool = True) -> None:
        self._watch.end()
        await asyncio.gather(*(part.close(flush=flush) for part in self._parts))

    def _route(self, sequence_id: int | None, key: Key | None) -> int | None:
        """The partition of a message; None: any. Raises InvalidSequenceId, InvalidArgument."""
        partitions = len(self._parts) if sequence_id is None else self._numbered
        hashed = plain_key(key)
        if hashed is not None:
            return partition_of(hashed, partitions)
        return None if sequence_id is None else check_sequence_id(sequence_id) % partitions


async def _open_all(parts: Sequence[AsyncProducer], timeout_ms: int | None) -> None:
    for start in range(0, len(parts), OPENINGS_MAX):
        await asyncio.gather(*(part.open(timeout_ms) for part in parts[start : start + OPENINGS_MAX]))
