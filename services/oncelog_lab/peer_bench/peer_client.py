"""A Python client of Kafka (confluent-kafka) or Pulsar (pulsar-client) that runs one load until it is killed.

    python -m oncelog_lab.peer_bench.peer_client kafka|pulsar ADDRESS LOAD SECONDS MESSAGES

Prints a line for each run (`loads.run_line`). A load that publishes runs for SECONDS, a load that reads reads MESSAGES;
the topic has the name of the load. It imports nothing of Oncelog's SDK.

A future for each message is one of concurrent.futures that the callback of the message sets. Kafka's lists are calls of
`produce_batch`. The client of Pulsar has no call for lists: there, each message is sent with its callback.
"""

import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from oncelog_lab.bench.figures import Latencies
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S, SHAPES, PeerLoad, Run, run_line
from oncelog_lab.values import make_values

#: As the loads of Oncelog: messages between two looks at the clock, pending futures, and the size of a list.
AT_ONCE = 2500
PENDING_MAX = 15_000
LIST_BYTES = 2 * 1024 * 1024
#: For a topic, for the last acknowledgements, and for the next message.
WAIT_S = 60.0
#: Messages of one list, and how long a client waits until it has so many.
_READ_AT_ONCE = 10_000
_READ_WAIT_S = 0.1

#: Called with the outcome (see `PeerClient.ok`) and the message or its id.
Answered = Callable[[Any, Any], None]


class LoadFailed(Exception):
    """A message was not stored or not read; the message says what the client reported."""


class PeerClient(Protocol):
    """ok: the outcome of a message that is stored."""

    ok: Any

    def open_topic(self, topic: str) -> None:
        """Create a topic with three copies; later calls publish to it."""

    def send(self, value: bytes, answered: Answered) -> None:
        """Waits while the client has no room."""

    def send_list(self, values: Sequence[bytes]) -> None: ...

    def serve(self, seconds: float) -> None:
        """Let callbacks run. May return earlier."""

    def flush(self) -> None:
        """Wait for all messages."""

    def read_batches(self, topic: str, messages: int) -> int:
        """Read so many messages from the start, a list at a time; returns less if no more come for WAIT_S."""

    def read_objects(self, topic: str, messages: int) -> int:
        """The same, one message at a time."""


def run_load(client: PeerClient, load: PeerLoad, seconds: float, messages: int) -> Iterator[Run]:
    """The figures of one run after the other. Raises LoadFailed."""
    shape = SHAPES[load]
    values = make_values(shape.message_bytes, LIST_BYTES // shape.message_bytes)
    if load in _PUBLISH:
        client.open_topic(load)
        while True:
            yield _PUBLISH[load](client, values, seconds)
    read = client.read_objects if load is PeerLoad.READ_OBJECTS else client.read_batches
    for number in itertools.count():
        topic = f"{load}-{number}" if load is PeerLoad.READ_1K else str(load)
        if load is PeerLoad.READ_1K or number == 0:
            client.open_topic(topic)
            for first in range(0, messages, len(values)):
                client.send_list(values[: messages - first])
            client.flush()
        began = time.perf_counter()
        found = read(topic, messages)
        took = time.perf_counter() - began
        if found < messages:
            raise LoadFailed(f"{topic} has {messages:,} messages, but {found:,} could be read within {WAIT_S:.0f} s")
        yield (found / took,)


def _serve_until(client: PeerClient, done: Callable[[], bool]) -> None:
    """Until callbacks have run. Raises LoadFailed after WAIT_S."""
    ends_at = time.monotonic() + WAIT_S
    while not done():
        if time.monotonic() > ends_at:
            raise LoadFailed(f"messages were not answered within {WAIT_S:.0f} s")
        client.serve(0.001)


def publish_callbacks(client: PeerClient, values: Sequence[bytes], seconds: float) -> Run:
    """Messages a second. Raises LoadFailed."""
    stored = sent = 0
    failed: list[object] = []

    def answered(outcome: object, _message: object) -> None:
        nonlocal stored
        stored += 1
        if outcome != client.ok:
            failed.append(outcome)

    began = time.perf_counter()
    while time.perf_counter() - began < seconds and not failed:
        for value in values[:AT_ONCE]:
            client.send(value, answered)
        sent += AT_ONCE
        client.serve(0)
    client.flush()
    _serve_until(client, lambda: stored == sent)
    took = time.perf_counter() - began
    if failed:
        raise LoadFailed(f"{len(failed):,} of {sent:,} messages were not stored: {failed[0]}")
    return (sent / took,)


def publish_futures(client: PeerClient, values: Sequence[bytes], seconds: float) -> Run:
    """Messages a second. Raises LoadFailed."""
    pending: deque[Future[Any]] = deque()
    sent = 0

    def settle(future: Future[Any], outcome: object, _message: object) -> None:
        future.set_result(outcome)

    def wait_until(count: int) -> None:
        while len(pending) > count:
            future = pending.popleft()
            _serve_until(client, future.done)
            if future.result() != client.ok:
                raise LoadFailed(f"a message was not stored: {future.result()}")

    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for value in values[:AT_ONCE]:
            pending.append(Future())
            client.send(value, partial(settle, pending[-1]))
        sent += AT_ONCE
        client.serve(0)
        wait_until(PENDING_MAX)
    client.flush()
    wait_until(0)
    return (sent / (time.perf_counter() - began),)


def publish_lists(client: PeerClient, values: Sequence[bytes], seconds: float) -> Run:
    """Messages a second."""
    sent = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        client.send_list(values)
        sent += len(values)
    client.flush()
    return (sent / (time.perf_counter() - began),)


def publish_paced(client: PeerClient, values: Sequence[bytes], seconds: float) -> Run:
    """Single messages at a fixed rate, from the call to the callback. Raises LoadFailed."""
    latencies: list[float] = []
    failed: list[object] = []

    def answered(sent_at: float, outcome: object, _message: object) -> None:
        latencies.append(time.perf_counter() - sent_at)
        if outcome != client.ok:
            failed.append(outcome)

    count = round(MESSAGES_PER_S * seconds)
    began = time.perf_counter()
    for number in range(count):
        while (wait := began + number / MESSAGES_PER_S - time.perf_counter()) > 0:
            client.serve(wait)
        client.send(values[0], partial(answered, time.perf_counter()))
    client.flush()
    _serve_until(client, lambda: len(latencies) == count)
    if failed:
        raise LoadFailed(f"{len(failed):,} of {count:,} messages were not stored: {failed[0]}")
    found = Latencies.of(latencies)
    return found.p50_ms, found.p99_ms


_PUBLISH: dict[PeerLoad, Callable[[PeerClient, Sequence[bytes], float], Run]] = {
    PeerLoad.CALLBACKS: publish_callbacks,
    PeerLoad.FUTURES: publish_futures,
    PeerLoad.LISTS: publish_lists,
    PeerLoad.LISTS_1K: publish_lists,
    PeerLoad.LATENCY: publish_paced,
}


def _read_lists(receive: Callable[[], Sequence[Any]], value_of: Callable[[Any], bytes], messages: int) -> int:
    """receive: returns what there is, perhaps nothing."""
    found = 0
    ends_at = time.monotonic() + WAIT_S
    while found < messages and time.monotonic() < ends_at:
        received = receive()
        for message in received:
            found += len(value_of(message)) > 0
        if received:
            ends_at = time.monotonic() + WAIT_S
    return found


class KafkaClient:
    """confluent-kafka. Its callbacks run in `poll` and `flush`, in this thread."""

    ok = None

    def __init__(self, address: str, *, lone: bool) -> None:
        """lone: send each message at once."""
        self._kafka: Any = import_module("confluent_kafka")
        self._servers = {"bootstrap.servers": address}
        settings = self._servers | {"enable.idempotence": True} | ({"linger.ms": 0} if lone else {})
        self._producer = self._kafka.Producer(settings)
        if not hasattr(self._producer, "produce_batch"):
            raise LoadFailed("this confluent-kafka has no lists: pip install --upgrade confluent-kafka")
        self._topic = ""

    def open_topic(self, topic: str) -> None:
        """The brokers may not know each other yet."""
        admin: Any = import_module("confluent_kafka.admin")
        self._topic = topic
        client = admin.AdminClient(self._servers)
        ends_at = time.monotonic() + WAIT_S
        while True:
            created = client.create_topics([admin.NewTopic(topic, num_partitions=1, replication_factor=3)])
            try:
                created[topic].result()
                return
            except self._kafka.KafkaException as error:
                if time.monotonic() > ends_at:
                    raise LoadFailed(f"the topic {topic} cannot be created: {error}") from error
                time.sleep(0.5)

    def send(self, value: bytes, answered: Answered) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, on_delivery=answered)
                return
            except BufferError:  # the queue is full
                self._producer.poll(0.01)

    def send_list(self, values: Sequence[bytes]) -> None:
        left = [{"value": value} for value in values]
        while left:
            self._producer.produce_batch(self._topic, left)
            # Those for which the queue had no room have this key.
            left = [{"value": each["value"]} for each in left if "_error" in each]
            self._producer.poll(0.01 if left else 0)

    def serve(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def flush(self) -> None:
        if left := self._producer.flush(WAIT_S):
            raise LoadFailed(f"{left:,} messages were not acknowledged within {WAIT_S:.0f} s")

    @contextmanager
    def _consumer(self, topic: str) -> Iterator[Any]:
        consumer = self._kafka.Consumer(self._servers | {"group.id": "bench", "enable.auto.commit": False})
        consumer.assign([self._kafka.TopicPartition(topic, 0, self._kafka.OFFSET_BEGINNING)])
        try:
            yield consumer
        finally:
            consumer.close()

    @staticmethod
    def _value(message: Any) -> bytes:
        """Its value may be an error instead."""
        if message.error() is not None:
            raise LoadFailed(f"a message cannot be read: {message.error()}")
        return message.value()  # type: ignore[no-any-return]

    def read_batches(self, topic: str, messages: int) -> int:
        with self._consumer(topic) as consumer:
            return _read_lists(partial(consumer.consume, _READ_AT_ONCE, _READ_WAIT_S), self._value, messages)

    def read_objects(self, topic: str, messages: int) -> int:
        found = 0
        with self._consumer(topic) as consumer:
            while found < messages and (message := consumer.poll(WAIT_S)) is not None:
                found += len(self._value(message)) > 0
        return found


class PulsarClient:
    """pulsar-client. Its callbacks run in a thread of its own."""

    def __init__(self, address: str, *, lone: bool, logger: Any = None) -> None:
        """lone: send each message at once. logger: of the library; None: it prints what it does."""
        self._pulsar: Any = import_module("pulsar")
        self.ok = self._pulsar.Result.Ok
        self._client = self._pulsar.Client(address, **({} if logger is None else {"logger": logger}))
        self._lone = lone
        self._producer: Any = None
        self._failed: list[object] = []

    def open_topic(self, topic: str) -> None:
        self._producer = self._client.create_producer(
            topic,
            producer_name="bench",
            send_timeout_millis=0,  # as Pulsar's documents say for deduplication
            max_pending_messages=PENDING_MAX,
            block_if_queue_full=True,
            batching_enabled=not self._lone,
        )

    def send(self, value: bytes, answered: Answered) -> None:
        self._producer.send_async(value, answered)

    def send_list(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.send_async(value, self._answered)

    def _answered(self, outcome: object, _message: object) -> None:
        if outcome != self.ok:
            self._failed.append(outcome)

    def serve(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        self._producer.flush()
        if self._failed:
            raise LoadFailed(f"{len(self._failed):,} messages were not stored: {self._failed[0]}")

    def read_batches(self, topic: str, messages: int) -> int:
        wait_ms = round(_READ_WAIT_S * 1000)
        consumer = self._client.subscribe(
            topic,
            f"bench-{time.monotonic_ns()}",
            initial_position=self._pulsar.InitialPosition.Earliest,
            receiver_queue_size=_READ_AT_ONCE,
            batch_receive_policy=self._pulsar.ConsumerBatchReceivePolicy(_READ_AT_ONCE, LIST_BYTES, wait_ms),
        )
        try:
            return _read_lists(consumer.batch_receive, lambda message: message.data(), messages)
        finally:
            consumer.close()

    def read_objects(self, topic: str, messages: int) -> int:
        found = 0
        reader = self._client.create_reader(topic, self._pulsar.MessageId.earliest)
        try:
            while found < messages:
                found += len(reader.read_next(round(WAIT_S * 1000)).data()) > 0
        except self._pulsar.Timeout:
            pass  # there are no more
        finally:
            reader.close()
        return found

    def close(self) -> None:
        self._client.close()


_CLIENTS: dict[str, type[KafkaClient] | type[PulsarClient]] = {"kafka": KafkaClient, "pulsar": PulsarClient}


def main(system: str, address: str, name: str, seconds: str, messages: str) -> None:
    load = PeerLoad(name)
    try:
        client = _CLIENTS[system](address, lone=load is PeerLoad.LATENCY)
        for run in run_load(client, load, float(seconds), int(messages)):
            print(run_line(run), flush=True)
    except LoadFailed as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
