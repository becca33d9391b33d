"""The log in memory, as the sink's client sees it: named producers that fence, ids that are stored once, readers.

It gives only the guarantees that `SinkLog` relies on, so that the sink can be interrupted after each of its calls
without a cluster. `MemoryLog.dies_at` is the last call of any producer, and whether it was stored before the process
died.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from oncelog.client.sync import Client
from oncelog.core.errors import DeadlineExceeded, ProducerFenced, SequenceGap, TopicNotFound
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog_spark.sink.journal_records import RangeBatch
from oncelog_spark.sink.log import SinkLog
from oncelog_spark.sink.options import SinkOptions, sink_options

TOPIC_ID = TopicId("ab" * 16)


class Died(BaseException):
    """The process is killed here; nothing may catch it."""


@dataclass
class Entry:
    """What one call stored, in columns of equal length."""

    producer_name: str
    sequence_ids: list[int]
    values: list[bytes]
    keys: list[bytes | None] | None
    event_times_ms: list[int | None] | None
    properties: list[Mapping[str, str]] | None

    #: number of the entry in its topic
    place: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def message_id(self, index: int) -> MessageId:
        return _id(self.place, index)


@dataclass
class Name:
    """A producer's name on one topic."""

    generation: int = 0
    mark: int = -1
    mode: str = ""
    places: dict[int, MessageId] = field(default_factory=dict)


@dataclass
class Topic:
    entries: list[Entry] = field(default_factory=list)
    names: dict[str, Name] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, int, bytes]]:
        """(producer, sequence id, value) of every message."""
        return [
            (entry.producer_name, number, value)
            for entry in self.entries
            for number, value in zip(entry.sequence_ids, entry.values, strict=True)
        ]


@dataclass
class MemoryLog:
    """Topics outlive clients. calls: sends so far, of all producers.

    dies_at: (number of a send, whether it is stored). creates: topics are created automatically. forgets: the log
    does not know whether ids up to the last one were stored, as after an idle time. entries_read: by all readers.
    """

    topics: dict[str, Topic] = field(default_factory=dict)
    creates: bool = True
    calls: int = 0
    dies_at: tuple[int, bool] | None = None
    forgets: bool = False
    #: {topic: number of its partitions}
    partitions: dict[str, int] = field(default_factory=dict)
    entries_read: int = 0

    def topic(self, name: str) -> Topic:
        if name not in self.topics and not self.creates:
            raise TopicNotFound(f"there is no topic {name}")
        return self.topics.setdefault(name, Topic())

    def sink_log(self, **given: str) -> tuple[SinkLog, SinkOptions]:
        """A client of its own, with the options of a stream."""
        named = {} if given.get("destination") == "columns" else {"topic": "out"}
        options = sink_options({**named, "producerPrefix": "copy", **given}, {}, streaming=True)
        return SinkLog(
            cast("Client", MemoryClient(self)), options, lambda topic: self.partitions.get(topic, 0)
        ), options

    def rows(self, topic: str = "public/default/out") -> list[tuple[str, int, bytes]]:
        return self.topic(topic).rows()

    def hidden(self, kind: str) -> list[str]:
        """Hidden topics of this kind."""
        return sorted(name for name in self.topics if "/__sink." in name and kind in name)


def batch(number: int) -> RangeBatch:
    """A batch of the tests' only query."""
    return RangeBatch("query q", number)


def after_each_death(work: Callable[[MemoryLog], None], calls: int) -> Iterator[MemoryLog]:
    """A log for each call at which `work` may die, with the call stored or not."""
    for call in range(1, calls + 1):
        for stored in (False, True):
            log = MemoryLog(dies_at=(call, stored))
            with pytest.raises(Died):
                work(log)
            log.dies_at = None
            yield log


def calls_of(work: Callable[[MemoryLog], None]) -> int:
    log = MemoryLog()
    work(log)
    return log.calls


class MemoryClient:
    """Stands in for `oncelog.Client`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        # for `run_on`
        self._inner, self._portal = AsyncMemoryClient(self), SimpleNamespace(run=asyncio.run)

    def create_producer(
        self,
        topic: str,
        *,
        producer_name: str,
        sequence_mode: str,
        send_timeout: float,
        on_unverified: str,
        on_content_differs: str,
    ) -> "MemoryProducer":
        assert send_timeout > 0
        assert on_content_differs == ("accept" if sequence_mode == "contiguous" else "raise")
        assert on_unverified == "accept", "the sink finds out by itself whether such a row is stored"
        name = self._log.topic(topic).names.setdefault(producer_name, Name())
        assert name.mode in {"", sequence_mode}, "a name keeps its mode"
        name.generation, name.mode = name.generation + 1, sequence_mode
        return MemoryProducer(self._log, topic, producer_name, contiguous=sequence_mode == "contiguous")

    def last_message_id(self, topic: str) -> MessageId | None:
        entries = self._log.topic(topic).entries
        return _id(len(entries) - 1, len(entries[-1]) - 1) if entries else None

    @contextmanager
    def create_reader(self, topic: str, *, start: MessageId, inclusive: bool) -> Iterator["MemoryReader"]:
        assert inclusive
        at = (0, 0) if start == EARLIEST else (int(start.entry_id), start.batch_index)
        yield MemoryReader(self._log, self._log.topic(topic).entries, *at)


class AsyncMemoryClient:
    """Reads for `oncelog.client.stored`."""

    def __init__(self, client: MemoryClient) -> None:
        self._client = client

    async def last_message_id(self, topic: str) -> MessageId | None:
        return self._client.last_message_id(topic)

    async def create_reader(
        self, topic: str, *, start: MessageId, inclusive: bool, on_encrypted: Literal["raise", "pass"]
    ) -> AbstractAsyncContextManager["MemoryReader"]:
        @asynccontextmanager
        async def reading() -> AsyncIterator[MemoryReader]:
            with self._client.create_reader(topic, start=start, inclusive=inclusive) as reader:
                yield reader

        return reading()


class MemoryProducer:
    """One instance; a newer one of its name fences it."""

    def __init__(self, log: MemoryLog, topic: str, name: str, *, contiguous: bool) -> None:
        self._log = log
        self._topic = log.topic(topic)
        self._producer_name = name
        self._name = self._topic.names[name]
        self._generation = self._name.generation
        self._contiguous = contiguous
        self.closed = False

    @property
    def last_sequence_id(self) -> int:
        return self._name.mark

    def send(self, value: bytes, *, sequence_id: int) -> SimpleNamespace:
        result = self.send_many([value], sequence_ids=[sequence_id])
        return SimpleNamespace(message_id=result.message_ids[0], duplicate=result.duplicates > 0)

    def send_many(
        self,
        values: Sequence[Buffer],
        *,
        sequence_ids: Sequence[int] | None = None,
        keys: Sequence[bytes | str | None] | None = None,
        event_times_ms: Sequence[int | None] | None = None,
        properties: Sequence[Mapping[str, str] | None] | None = None,
    ) -> SimpleNamespace:
        assert not self.closed
        assert len(values), "a call of nothing was made"
        self._log.calls += 1
        dies = self._log.dies_at is not None and self._log.dies_at[0] == self._log.calls
        if dies and self._log.dies_at is not None and not self._log.dies_at[1]:
            raise Died
        result = self._store(values, sequence_ids, keys, event_times_ms, properties)
        if dies:
            raise Died
        return result

    def _store(self, values: Any, given: Any, keys: Any, event_times_ms: Any, properties: Any) -> SimpleNamespace:
        if self._generation != self._name.generation:
            raise ProducerFenced(f"a newer instance of {self._producer_name} is open")
        mark, places = self._name.mark, self._name.places
        ids = list(range(mark + 1, mark + 1 + len(values))) if given is None else list(given)
        assert ids == sorted(set(ids))
        assert len(ids) == len(values)
        fresh = [at for at, number in enumerate(ids) if number > mark]
        if fresh and self._contiguous and ids[fresh[0]] != mark + 1:
            raise SequenceGap(f"{ids[fresh[0]]} comes after {mark}")
        if fresh:
            entry = Entry(
                self._producer_name,
                [ids[at] for at in fresh],
                [bytes(values[at]) for at in fresh],
                None if keys is None else [_bytes(keys[at]) for at in fresh],
                None if event_times_ms is None else [event_times_ms[at] for at in fresh],
                None if properties is None else [dict(properties[at] or {}) for at in fresh],
                len(self._topic.entries),
            )
            places |= {ids[at]: _id(len(self._topic.entries), index) for index, at in enumerate(fresh)}
            self._topic.entries.append(entry)
            self._name.mark = ids[-1]
        old = len(ids) - len(fresh)
        unverified = [range(old)] if old and self._log.forgets and not self._contiguous else []
        found = [places.get(number) for number in ids]
        if unverified:
            found[:old] = [None] * old
        return SimpleNamespace(message_ids=found, duplicates=old, unverified_ranges=unverified, verified=not unverified)

    def close(self, *, flush: bool = True) -> None:
        assert isinstance(flush, bool)
        self.closed = True


class MemoryReader:
    """Reads from one message on; at the end of the topic it raises DeadlineExceeded."""

    def __init__(self, log: MemoryLog, entries: list[Entry], entry: int, first: int) -> None:
        self._log = log
        self._entries = entries
        self._at = entry
        self._skip = first

    def read_batch(self, *, timeout: float) -> Entry:
        assert timeout > 0
        if self._at >= len(self._entries):
            raise DeadlineExceeded("no further message")
        whole, skip = self._entries[self._at], self._skip
        self._at, self._skip = self._at + 1, 0
        self._log.entries_read += 1
        return Entry(
            whole.producer_name,
            whole.sequence_ids[skip:],
            whole.values[skip:],
            None if whole.keys is None else whole.keys[skip:],
            None if whole.event_times_ms is None else whole.event_times_ms[skip:],
            None if whole.properties is None else whole.properties[skip:],
            whole.place,
        )

    async def batch_up_to(self, last: MessageId, *, timeout: float) -> Entry | None:
        return self.read_batch(timeout=timeout) if _id(self._at, self._skip) <= last else None

    def read_next(self, *, timeout: float) -> SimpleNamespace:
        place, index = self._at, self._skip
        entry = self.read_batch(timeout=timeout)
        if len(entry) > 1:
            self._at, self._skip = place, index + 1
        return SimpleNamespace(
            value=entry.values[0],
            sequence_id=entry.sequence_ids[0],
            producer_name=entry.producer_name,
            message_id=_id(place, index),
        )


def _id(entry: int, index: int) -> MessageId:
    return MessageId(TOPIC_ID, -1, LedgerId(1), EntryId(entry), index)


def _bytes(key: bytes | str | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
