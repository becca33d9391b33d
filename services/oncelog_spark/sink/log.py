"""The log as the sink uses it: one client for a task or a commit, its producers, and journals.

A client is made inside a task or a commit, never before: workers are forked.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self

from oncelog.client.sync import Client, Producer
from oncelog.client.values.messages import Message
from oncelog.core.errors import (
    Conflict,
    ProducerClosed,
    Retriable,
    TopicNotFound,
)
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.options import ConnectionOptions
from oncelog_spark.sink.names import journal_topic
from oncelog_spark.sink.options import SinkOptions
from oncelog_spark.sink.routing import Router
from oncelog_spark.sink.rows import Rows

#: The one producer of every journal.
JOURNAL = "journal"


@contextmanager
def connected(options: SinkOptions) -> Iterator[Client]:
    """A client of the cluster, closed at the end."""
    link = options.connection
    with Client(
        link.url,
        token=link.token,
        tls_ca_file=link.tls_ca_file,
        allow_plaintext_token=link.plaintext_token_allowed,
        operation_timeout=float(options.send_timeout_s),
    ) as client:
        yield client


def partitions_in(connection: ConnectionOptions, topic: str) -> int:
    """How many partitions the topic has; 0: none, or it does not exist yet and is created on first use."""

    async def ask(cluster: ClusterConnection) -> int:
        try:
            return await cluster.partitions(topic)
        except TopicNotFound:
            return 0

    return run_connected(connection, ask)


class SinkLog:
    """Opens producers, journals and readers; every wait is bounded by sendTimeoutSeconds."""

    def __init__(self, client: Client, options: SinkOptions, partitions_of: Callable[[str], int] | None = None) -> None:
        self.client = client
        self.target = options.topic
        self.router = Router(options.target, partitions_of or partial(partitions_in, options.connection))
        self.timeout_s = float(options.send_timeout_s)

    def producer(self, topic: str, name: str, mode: Literal["monotonic", "contiguous"]) -> Producer:
        """A new instance, which fences older instances of the name. Raises OncelogError."""
        try:
            return self.client.create_producer(
                topic,
                producer_name=name,
                sequence_mode=mode,
                send_timeout=self.timeout_s,
                on_unverified="accept",
                # The journal and mode batch, which are contiguous, compare more than the log can, and say more.
                on_content_differs="accept" if mode == "contiguous" else "raise",
            )
        except TopicNotFound as error:
            raise TopicNotFound(
                f"topic {topic} does not exist, and its namespace does not allow automatic creation: create the topic "
                f"({error.message})"
            ) from error

    def journal(self, producer: str) -> "SinkJournal":
        """The journal of one producer of the target."""
        return SinkJournal(self, journal_topic(self.target, producer))

    def read_from(self, start: MessageId, topic: str) -> Iterator[Message]:
        """Messages from this one on, waiting for each. Raises DeadlineExceeded when no message comes in time."""
        with self.client.create_reader(topic, start=start, inclusive=True) as reader:
            while True:
                yield reader.read_next(timeout=self.timeout_s)


class SinkJournal:
    """The hidden topic with the records of one producer."""

    def __init__(self, log: SinkLog, topic: str) -> None:
        self.topic = topic
        self._log = log
        self._producer: Producer | None = None
        self._last: Message | None = None

    def open(self) -> tuple[int, bytes | None]:
        """Fence older instances. Returns the number of the last record and its bytes, (-1, None) when there is none.

        Raises Retriable when another instance opened the journal since, Conflict when it has a message of another
        program.
        """
        self.close()
        self._producer = self._log.producer(self.topic, JOURNAL, "contiguous")
        number = self._producer.last_sequence_id
        last_id = self._log.client.last_message_id(self.topic)
        self._last = None if last_id is None else next(self._log.read_from(last_id, self.topic))
        found = -1 if self._last is None else self._last.sequence_id
        if found > number and self._last is not None and self._last.producer_name == JOURNAL:
            raise Retriable(f"another driver or attempt has written to journal {self.topic} meanwhile")
        if found != number or (self._last is not None and self._last.producer_name != JOURNAL):
            raise Conflict(
                f"journal {self.topic} ends with a message of another program: only this sink may publish there"
            )
        return number, None if self._last is None else self._last.value

    @property
    def last_id(self) -> str:
        """Message id of the last record when the journal was opened, in hex; empty: there was none."""
        return "" if self._last is None else self._last.message_id.to_bytes().hex()

    def records(self, start: str, end: int) -> Iterator[bytes]:
        """The records from this message id on ("": from the first record) up to number `end`."""
        first = MessageId.from_bytes(bytes.fromhex(start)) if start else EARLIEST
        for message in self._log.read_from(first, self.topic):
            yield message.value
            if message.sequence_id >= end:
                break

    def append(self, number: int, record: bytes) -> str:
        """Store the record. Returns its message id, in hex. Raises OncelogError, for example ProducerFenced."""
        if self._producer is None:
            raise ProducerClosed("the journal is not open")
        result = self._producer.send(record, sequence_id=number)
        if result.duplicate or result.message_id is None:
            raise Retriable(f"record {number} of journal {self.topic} was stored already")
        return result.message_id.to_bytes().hex()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(flush=False)
            self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(slots=True)
class SentRows:
    """The outcome of rows that were sent. first, last: message ids of the first and last row, None where the log does
    not remember them. unverified: ids that were not stored by this send, and of which the log does not know whether
    they were ever stored.
    """

    first: MessageId | None = None
    last: MessageId | None = None
    unverified: list[int] = field(default_factory=list)


def send_rows(producer: Producer, rows: Rows, ids: Sequence[int] | None) -> SentRows:
    """Publish all rows and wait until they are stored, except those that are `unverified`.

    ids None: automatic ids, which are always new.
    """
    sent = SentRows()
    for start, end in rows.calls():
        piece = rows.slice(start, end)
        result = producer.send_many(
            piece.values,
            sequence_ids=None if ids is None else ids[start:end],
            keys=piece.keys,
            event_times_ms=piece.event_times_ms,
            properties=piece.properties,
        )
        if start == 0:
            sent.first = result.message_ids[0]
        sent.last = result.message_ids[-1]
        given = range(start, end) if ids is None else ids[start:end]
        for each in result.unverified_ranges:
            sent.unverified += given[each.start : each.stop]
    return sent
