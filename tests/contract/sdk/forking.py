"""A program that forks, for test_client_forks: `python -m tests.contract.sdk.forking URL FORKS`.

It has a client with a producer, a reader and a consumer, and sends in flight at each fork. Each child does one of KINDS
and ends with exit code 0 if all was as promised; one that hangs is ended by an alarm. It prints {kind: {exit code:
children}} as JSON.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import oncelog
from oncelog.errors import ClientForked, OncelogError

ALARM_S = 40
SENDS = 20


class Parent:
    """What the children inherit."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = oncelog.Client(url)
        self.producer = self.client.create_producer("flights", producer_name="parent")
        self.producer.send_many([b"one", b"two"])
        self.reader = self.client.create_reader("flights")
        self.reader.read_next(timeout=30)
        self.consumer = self.client.subscribe("flights", subscription="s", start=oncelog.EARLIEST)
        self.message = self.consumer.receive(timeout=30)


def untouched(parent: Parent) -> None:
    """Ends as a program does, with finalizers, after it has dropped all that it inherited."""
    vars(parent).clear()
    gc.collect()


def own_client(parent: Parent) -> None:
    with oncelog.Client(parent.url, operation_timeout=30) as client:
        topic = f"child-{os.getpid()}"
        with client.create_producer(topic) as producer:
            assert not producer.send(b"from a child").duplicate
        assert client.create_reader(topic).read_next(timeout=30).value == b"from a child"


def own_asyncio_client(parent: Parent) -> None:
    async def publish() -> None:
        async with await oncelog.connect(parent.url, operation_timeout=30) as client:
            producer = await client.create_producer(f"child-{os.getpid()}")
            assert not (await producer.send(b"from a child")).duplicate

    asyncio.run(publish())


def grandchild(parent: Parent) -> None:
    """A child with a client of its own forks in its turn."""
    with oncelog.Client(parent.url, operation_timeout=30) as client:
        client.create_producer(f"child-{os.getpid()}").send(b"x")
        if not (child := os.fork()):
            signal.alarm(ALARM_S)
            refused(lambda: client.create_reader("flights"))
            own_client(parent)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def inherited(parent: Parent) -> None:
    """Each call raises one error, at once; closing does nothing."""
    producer, reader, consumer, client = parent.producer, parent.reader, parent.consumer, parent.client
    for call in (
        lambda: client.create_producer("flights"),
        lambda: client.create_reader("flights"),
        lambda: client.subscribe("flights", subscription="other"),
        lambda: client.last_message_id("flights"),
        lambda: producer.send(b"x"),
        lambda: producer.send_many([b"x"]),
        lambda: producer.send_nowait(b"x"),
        producer.flush,
        reader.read_next,
        reader.read_batch,
        reader.has_message_available,
        lambda: reader.seek(oncelog.EARLIEST),
        lambda: next(iter(reader)),
        consumer.receive,
        consumer.receive_batch,
        lambda: consumer.ack(parent.message),
        lambda: consumer.ack_nowait(parent.message),
        lambda: consumer.ack_cumulative(parent.message),
        lambda: consumer.nack(parent.message),
        lambda: consumer.seek(oncelog.EARLIEST),
        lambda: next(iter(consumer)),
    ):
        refused(call)
    assert isinstance(producer.failure, ClientForked)
    assert isinstance(consumer.failure, ClientForked)
    with ExitStack() as left:
        for each in (client, producer, reader, consumer):
            left.enter_context(each)
    for each in (producer, reader, consumer, client, client):
        each.close()


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ClientForked, match="create a client in this process") as caught:
        call()
    assert caught.value.stored is False


KINDS = (untouched, own_client, inherited, own_asyncio_client, grandchild)


def main(url: str, forks: int) -> None:
    parent = Parent(url)
    ended: dict[str, Counter[int]] = {kind.__name__: Counter() for kind in KINDS}
    for number in range(forks):
        kind = KINDS[number % len(KINDS)]
        sends = [parent.producer.send_nowait(b"in flight") for _ in range(SENDS)]
        child = os.fork()
        if not child:
            signal.alarm(ALARM_S)
            kind(parent)
            sys.exit(0)
        ended[kind.__name__][os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] += 1
        for send in sends:
            assert not send.result(30).duplicate
    # The parent's connections were not disturbed: its client works on, and closes.
    assert parent.client.last_message_id("flights") is not None
    parent.consumer.ack(parent.message)
    parent.client.close()
    print(json.dumps(ended))


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except OncelogError as error:
        sys.exit(f"{error!r}")
