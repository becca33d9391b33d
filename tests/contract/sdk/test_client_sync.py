"""The synchronous SDK, against the fake cluster on a separate loop: the same behaviour, from threads."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, as_completed, wait
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

import oncelog
from oncelog.client.portal import Portal
from oncelog.core.errors import (
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    InvalidSequenceId,
    OncelogError,
    ProducerClosed,
    ReaderClosed,
)
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

T = TypeVar("T")
DEADLINE_S = 30.0


class Running:
    """The fake cluster in a thread; `do` runs something on its loop."""

    def __init__(self) -> None:
        self.portal = Portal()
        self._stack = AsyncExitStack()
        self.cluster = self.portal.run(self._stack.enter_async_context(FakeCluster.running()))

    def do(self, work: Callable[[FakeCluster], Coroutine[Any, Any, T]]) -> T:
        return self.portal.run(work(self.cluster))

    def stop(self) -> None:
        self.portal.run(self._stack.aclose())
        self.portal.stop()


@pytest.fixture
def running() -> Iterator[Running]:
    cluster = Running()
    yield cluster
    cluster.stop()


def test_leaving_a_client_waits_for_pending_messages(running: Running) -> None:
    """Also for producers that were not flushed or closed."""
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights", producer_name="importer")
        futures = [producer.send_nowait(b"%d" % i) for i in range(50)]
    assert [future.result(0).sequence_id for future in futures] == list(range(50))


def test_each_object_says_what_it_is(running: Running) -> None:
    """And never a token."""
    with oncelog.Client(running.cluster.url, token="secret", allow_plaintext_token=True) as client:
        producer = client.create_producer("flights", producer_name="importer")
        result = producer.send_many([b"a", b"b"])
        topic = "public/default/flights"
        assert repr(client).startswith("Client(127.0.0.1:")
        assert "secret" not in repr(client)
        assert repr(producer) == f"Producer('{topic}', producer_name='importer', last_sequence_ids=(1,))"
        assert repr(result.message_ids) == f"MessageIds(2, first={result.message_ids[0]}, last={result.message_ids[1]})"
        reader = client.create_reader("flights", start=oncelog.EARLIEST)
        assert repr(reader) == f"Reader('{topic}')"
        reader.close()
        assert repr(reader) == f"Reader('{topic}', closed)"
    assert repr(producer).endswith(", failure=ProducerClosed)")


def test_reader_starts_at_an_index(running: Running) -> None:
    """As with the asynchronous reader."""
    with oncelog.Client(running.cluster.url) as client:
        client.create_producer("flights").send_many([b"%d" % i for i in range(10)])
        assert client.create_reader("flights", start=oncelog.Index(7)).read_next(timeout=DEADLINE_S).value == b"7"


def test_consumer_works_without_an_event_loop(running: Running) -> None:
    """It receives, acknowledges and ends as the asynchronous one."""
    with oncelog.Client(running.cluster.url) as client:
        client.create_producer("flights").send_many([b"0", b"1", b"2", b"3"])
        with client.subscribe("flights", subscription="billing", start=oncelog.EARLIEST) as consumer:
            assert consumer.ack(consumer.receive_batch(2, max_wait=DEADLINE_S)).durable
            kept = consumer.ack_nowait(consumer.receive(timeout=DEADLINE_S))
        assert kept.result(0).durable
        with client.subscribe("flights", subscription="billing") as consumer:
            values = []
            for message in consumer:
                values.append(message.value)
                consumer.close()
            assert values == [b"3"]


def test_sdk_works_without_an_event_loop(running: Running) -> None:
    """The lines of the README without await."""
    with oncelog.Client(running.cluster.url) as client:
        with client.create_producer("flights", producer_name="importer") as producer:
            result = producer.send(b"one", sequence_id=1)
            assert (result.sequence_id, result.duplicate) == (1, False)
            later = [producer.send_nowait(b"%d" % i, sequence_id=i) for i in range(2, 50)]
            many = producer.send_many([b"x", b"y"], sequence_ids=[50, 60])
            producer.flush()
            assert [future.result(DEADLINE_S).sequence_id for future in later] == list(range(2, 50))
            assert (many.first, many.last) == (50, 60)
            assert (producer.producer_name, producer.last_sequence_id) == ("importer", 60)
        with pytest.raises(ProducerClosed):
            producer.send(b"late", sequence_id=70)
        with client.create_reader("flights") as reader:
            first = reader.read_next(timeout=DEADLINE_S)
            assert (first.value, first.producer_name) == (b"one", "importer")
            seen = [first.value]
            while reader.has_message_available():
                seen += reader.read_batch(timeout=DEADLINE_S).values.to_list()
            assert seen == [b"one", *[b"%d" % i for i in range(2, 50)], b"x", b"y"]
            with pytest.raises(DeadlineExceeded):
                reader.read_next(timeout=0.01)
        assert str(client.last_message_id("flights")) == str(many.message_ids[-1])


def test_iteration_works_without_await(running: Running) -> None:
    """Message by message out of batches; it ends when the reader is closed."""
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights", batch_bytes_max=100)
        producer.send_many([b"%d" % i for i in range(100)])
        reader = client.create_reader("flights")
        seen = []
        for message in reader:
            seen.append(message.value)
            if len(seen) == 100:
                reader.close()
        assert seen == [b"%d" % i for i in range(100)]
        with pytest.raises(ReaderClosed):
            reader.read_next()


def test_errors_are_raised_in_the_calling_thread(running: Running) -> None:
    """With the same classes as in the asynchronous SDK."""
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")
        with pytest.raises(InvalidSequenceId):
            producer.send(b"x", sequence_id=-1)
        with pytest.raises(InvalidSequenceId):
            producer.send_nowait(b"x", sequence_id=-1).result(DEADLINE_S)


def test_threads_can_share_a_producer(running: Running) -> None:
    """Each thread's messages keep their order; none is lost."""
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")

        def publish(name: int) -> None:
            for i in range(100):
                producer.send(b"%d:%d" % (name, i))

        threads = [threading.Thread(target=publish, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        values = running.cluster.topic("flights").values()
        for name in range(4):
            own = [value for value in values if value.startswith(b"%d:" % name)]
            assert own == [b"%d:%d" % (name, i) for i in range(100)]


def test_application_does_not_notice_a_takeover(running: Running) -> None:
    """The thread's loop looks up and resends while the caller waits."""

    async def take_over(cluster: FakeCluster) -> None:
        cluster.knobs.lose_answers = 1
        await cluster.take_over()

    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")
        for i in range(5):
            producer.send(b"%d" % i)
            running.do(take_over)
        assert running.cluster.topic("flights").values() == [b"%d" % i for i in range(5)]


def test_closing_ends_the_thread_and_may_be_repeated(running: Running) -> None:
    """No thread stays behind."""
    before = threading.active_count()
    client = oncelog.Client(running.cluster.url)
    client.create_producer("flights").send(b"x")
    client.close()
    client.close()
    assert threading.active_count() <= before


def test_package_does_not_import_grpc_before_the_sdk_is_used() -> None:
    """The cluster's own processes import `oncelog` too."""
    import subprocess
    import sys

    code = "import sys, oncelog; oncelog.EARLIEST; assert 'grpc' not in sys.modules; oncelog.connect"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert callable(oncelog.connect)
    assert set(dir(oncelog)) >= {"connect", "Client", "EARLIEST", "LATEST", "MessageId"}


def test_threads_that_share_a_reader_share_its_messages(running: Running) -> None:
    """Each message goes to exactly one thread: the rest of a batch was lost when another thread got the next batch."""
    each, got = 5_000, list[int]()
    with oncelog.Client(running.cluster.url) as client:
        producer, reader = client.create_producer("flights"), client.create_reader("flights")

        def read() -> None:
            while len(got) < 10 * each:
                with suppress(DeadlineExceeded):
                    got.append(int(reader.read_next(timeout=0.2).value))

        threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(10):
            producer.send_many([b"%d" % i for i in range(number * each, (number + 1) * each)])
        for thread in threads:
            thread.join(DEADLINE_S)
    assert sorted(got) == list(range(10 * each))


def test_callback_of_a_future_may_call_the_client(running: Running) -> None:
    """As in other clients: it runs in a thread of its own. It stopped the client for ever, for all threads."""
    answers: list[object] = []
    closed = threading.Event()
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")

        def sends(_future: object) -> None:
            answers.append(producer.send(b"2"))
            answers.append(producer.send_nowait(b"3").result(DEADLINE_S))
            client.create_reader("flights").close()

        def fails(_future: object) -> None:
            raise asyncio.CancelledError

        def closes(_future: object) -> None:
            client.close()
            closed.set()

        first = producer.send_nowait(b"1")
        for callback in (fails, sends, closes):
            first.add_done_callback(callback)
        assert closed.wait(DEADLINE_S)
    assert [type(each) for each in answers] == [oncelog.SendResult] * 2
    assert running.cluster.topic("flights").values() == [b"1", b"2", b"3"]


def test_callback_may_wait_for_other_futures(running: Running) -> None:
    """In the thread of the callbacks, which is another one than that of the client."""
    with oncelog.Client(running.cluster.url) as client, client.create_producer("flights") as producer:
        waited: Future[bool] = Future()

        def waits(_: object) -> None:
            others = [producer.send_nowait(b"2"), producer.send_nowait(b"3")]
            waited.set_result(
                not wait(others, DEADLINE_S).not_done and len(list(as_completed(others, DEADLINE_S))) == 2
            )

        producer.send_nowait(b"1").add_done_callback(waits)
        assert waited.result(DEADLINE_S)


def test_callback_of_a_message_gets_its_result_or_error(running: Running) -> None:
    """In the order of the messages, in the thread of the callbacks; wrong arguments are the error of their message."""
    calls: list[tuple[int | str, int | None]] = []

    def noted(result: oncelog.SendResult | None, error: OncelogError | None) -> None:
        place = result.sequence_id if result is not None else type(error).__name__
        calls.append((place, threading.current_thread().ident))

    def fails(_result: object, _error: object) -> None:
        raise asyncio.CancelledError

    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")
        assert producer.send_nowait(b"0", on_result=noted, sequence_id=0) is None
        producer.send_nowait(b"1", on_result=fails, sequence_id=1)
        producer.send_nowait(b"2", on_result=noted, sequence_id=2)
        producer.send_nowait(b"-", on_result=noted, sequence_id=-1)
        with pytest.raises(InvalidArgument, match="on_result must be a function, not str"):
            producer.send_nowait(b"3", on_result="noted")  # type: ignore[call-overload]
    assert sorted(map(str, [place for place, _ in calls])) == ["0", "2", "InvalidSequenceId"]
    assert [place for place, _ in calls if place != "InvalidSequenceId"] == [0, 2]
    (thread,) = {thread for _, thread in calls}
    assert thread != threading.get_ident()
    with pytest.raises(ClientClosed):
        producer.send_nowait(b"late", on_result=noted)
    assert len(calls) == 3


def test_callback_of_a_message_may_send_wait_and_close(running: Running) -> None:
    """As the callbacks of futures. While one waits, other calls of the client go on."""
    answers: list[object] = []
    release, closed = threading.Event(), threading.Event()
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights")

        def sends(_result: object, _error: object) -> None:
            assert release.wait(DEADLINE_S)
            answers.append(producer.send(b"3"))
            producer.send_nowait(b"4", on_result=closes)

        def closes(_result: object, _error: object) -> None:
            client.close()
            closed.set()

        producer.send_nowait(b"1", on_result=sends)
        answers.append(producer.send(b"2"))
        release.set()
        assert closed.wait(DEADLINE_S)
    assert [type(each) for each in answers] == [oncelog.SendResult] * 2
    assert running.cluster.topic("flights").values() == [b"1", b"2", b"3", b"4"]


def test_end_of_the_client_is_the_error_of_its_messages(running: Running) -> None:
    """Each callback is called before `close` returns, also of a message that waits for room."""
    errors: list[str] = []
    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights", pending_bytes_max=1)
        running.do(lambda cluster: cluster.kill_owner())
        for _ in range(3):
            producer.send_nowait(b"x", on_result=lambda _, error: errors.append(type(error).__name__))
        client.close(flush=False)
        assert errors == ["ProducerClosed"] * 3


def test_call_in_the_thread_of_the_client_is_refused(running: Running) -> None:
    """It would wait for itself: as of a handler of logging, or of the function that returns the token."""
    refused: list[str] = []
    ready = threading.Event()

    def token() -> str:
        if ready.is_set():
            ready.clear()
            calls: list[Callable[[], object]] = [
                lambda: client.create_producer("flights"),
                client.close,
                reader.read_next,
                lambda: producer.send_nowait(b"x").result(),
                lambda: wait([producer.send_nowait(b"x")]),
                lambda: next(as_completed([producer.send_nowait(b"x")])),
                lambda: consumer.run(print),
            ]
            for call in calls:
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))
        return "t"

    with oncelog.Client(running.cluster.url, token=token) as client:
        producer, reader = client.create_producer("flights"), client.create_reader("flights")
        consumer = client.subscribe("flights", subscription="s")
        ready.set()
        client.last_message_id("flights")
        assert len(refused) == 7
        assert all("its own thread" in each for each in refused)
        assert client.last_message_id("flights"), "the client works on"


def test_blocking_call_in_a_coroutine_is_refused(running: Running) -> None:
    """It stopped the event loop, and everything on it, without a word."""

    async def refusals(calls: list[Callable[[], object]]) -> set[str]:
        texts: set[str] = set()
        for call in calls:
            with pytest.raises(RuntimeError) as refused:
                call()
            texts.add(str(refused.value))
        return texts

    with oncelog.Client(running.cluster.url) as client:
        producer, reader = client.create_producer("flights"), client.create_reader("flights")
        consumer = client.subscribe("flights", subscription="s")
        running.do(lambda cluster: cluster.kill_owner())
        pending = producer.send_nowait(b"0")
        texts = asyncio.run(
            refusals(
                [
                    lambda: oncelog.Client(running.cluster.url),
                    lambda: producer.send(b"x"),
                    reader.read_next,
                    lambda: next(iter(consumer)),
                    lambda: consumer.run(print),
                    lambda: pending.result(0),
                    lambda: wait([pending], 0),
                ]
            )
        )
        (text,) = texts
        assert "await oncelog.connect(...)" in text
        assert "asyncio.to_thread" in text
        assert "\n" not in text
        running.do(lambda cluster: cluster.take_over())
        assert pending.result(DEADLINE_S).sequence_id == 0, "and nothing else was sent"


def test_coroutine_may_start_sends_and_close(running: Running) -> None:
    """What waits for nothing works there, and so do futures, threads, and the end of a program."""

    async def main() -> list[int]:
        results = [
            await asyncio.wrap_future(producer.send_nowait(b"0")),
            await asyncio.to_thread(producer.send, b"1"),
        ]
        with client, producer:
            later = producer.send_nowait(b"2")
        return [each.sequence_id for each in (*results, later.result())]

    client = oncelog.Client(running.cluster.url)
    producer = client.create_producer("flights")
    assert asyncio.run(main()) == [0, 1, 2]


def test_blocking_call_works_in_a_notebook_and_beside_a_loop(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of a notebook is a coroutine of its event loop. Playwright's synchronous API leaves a running event loop
    behind in the caller's thread, and no coroutine."""

    async def cell() -> int:
        return client.create_producer("flights").send(b"0").sequence_id

    async def beside() -> list[int]:
        sent: list[int] = []
        loop = asyncio.get_running_loop()
        called: asyncio.Future[None] = loop.create_future()
        loop.call_soon(lambda: sent.append(producer.send(b"0").sequence_id))
        loop.call_soon(called.set_result, None)
        await called
        return sent

    with oncelog.Client(running.cluster.url) as client:
        producer = client.create_producer("flights", producer_name="p")
        assert asyncio.run(beside()) == [0]
        monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
        assert asyncio.run(cell()) == 0


@pytest.mark.parametrize(
    ("module", "asks", "name"),
    [
        ("gevent.monkey", {"is_module_patched": lambda name: name == "threading"}, "gevent"),
        ("eventlet.patcher", {"is_monkey_patched": lambda name: name == "thread"}, "eventlet"),
    ],
)
def test_threads_that_are_none_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch, module: str, asks: dict[str, object], name: str
) -> None:
    """Both clients waited for ever and said nothing. Also before an error about a wrong URL."""
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**asks))
    for use in (oncelog.Client, lambda url: asyncio.run(oncelog.connect(url))):
        with pytest.raises(RuntimeError, match=rf"not work with the threads of {name}.*\(thread=False\)") as caught:
            use("not a URL")
        assert "\n" not in str(caught.value)


def test_gevent_without_its_threads_is_no_obstacle(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after patch_all(thread=False)."""
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=lambda _name: False))
    with oncelog.Client(running.cluster.url) as client:
        client.create_producer("flights").send(b"x")
