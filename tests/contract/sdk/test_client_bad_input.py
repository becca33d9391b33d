"""Wrong input to the SDK: each mistake raises its own error at once and affects no other message."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

import oncelog
from oncelog.core.errors import (
    ClientClosed,
    DeadlineExceeded,
    InvalidArgument,
    InvalidName,
    InvalidSequenceId,
    MessageTooLarge,
    ModeMismatch,
    ProducerClosed,
    SequenceGap,
    SequenceIdRequired,
    TopicNotFound,
)
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.knobs import MESSAGE_BYTES_MAX

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


async def test_contiguous_gap_fails_only_its_message(client: oncelog.AsyncClient) -> None:
    """The producer stays usable and accepts the expected id."""
    producer = await client.create_producer("flights", producer_name="importer", sequence_mode="contiguous")
    futures = [producer.send_nowait(b"x", sequence_id=i) for i in (0, 1, 3)]
    await asyncio.wait(futures, timeout=DEADLINE_S)
    assert [future.exception() is None for future in futures] == [True, True, False]
    gap = futures[2].exception()
    assert isinstance(gap, SequenceGap)
    assert gap.details == {"expected": 2}
    assert not (await producer.send(b"x", sequence_id=2)).duplicate
    with pytest.raises(InvalidSequenceId):
        await producer.send_many([b"x", b"y"], sequence_ids=[3, 5])


async def test_mixing_explicit_and_automatic_ids_is_refused(client: oncelog.AsyncClient) -> None:
    """Refused at once in every way of sending; nothing is stored."""
    automatic = await client.create_producer("flights")
    await automatic.send(b"x")
    explicit = await client.create_producer("flights")
    await explicit.send(b"x", sequence_id=7)
    for wrong in (
        automatic.send(b"x", sequence_id=9),
        automatic.send_many([b"x"], sequence_ids=[9]),
        explicit.send(b"x"),
        explicit.send_many([b"x"]),
    ):
        with pytest.raises(SequenceIdRequired):
            await wrong
    await automatic.send(b"x")
    await explicit.send(b"x", sequence_id=8)


@pytest.mark.parametrize("wrong", [-1, 2**63, 2**70, 1.0, "7", True])
async def test_invalid_sequence_id_is_refused(client: oncelog.AsyncClient, wrong: int) -> None:
    """A negative, too large or non-integer id raises InvalidSequenceId, which names the field."""
    producer = await client.create_producer("flights")
    with pytest.raises(InvalidSequenceId) as caught:
        await producer.send(b"x", sequence_id=wrong)
    assert caught.value.details["field"] == "sequence_id"
    with pytest.raises(InvalidSequenceId):
        await producer.send_many([b"x", b"y"], sequence_ids=[wrong, 2**62])
    with pytest.raises(InvalidSequenceId):
        await producer.send_many([b"x", b"y"], sequence_ids=[5, 5])


async def test_message_of_the_largest_size_is_stored_and_a_larger_one_refused(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The limit is the 5 MiB that the owner grants; the producer stays usable."""
    producer = await client.create_producer("flights")
    await producer.send(b"x" * MESSAGE_BYTES_MAX)
    with pytest.raises(MessageTooLarge) as caught:
        await producer.send(b"x" * (MESSAGE_BYTES_MAX + 1))
    assert caught.value.details["limit"] == MESSAGE_BYTES_MAX
    with pytest.raises(MessageTooLarge):
        await producer.send_many([b"small", b"x" * (MESSAGE_BYTES_MAX + 100_000)])
    await producer.send(b"y")
    lengths = [len(value) for value in cluster.topic("flights").values()]
    assert (lengths[0], lengths[-1], max(lengths)) == (MESSAGE_BYTES_MAX, 1, MESSAGE_BYTES_MAX)


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": "text"},
        {"value": None},
        {"value": b"x", "key": 7},
        {"value": b"x", "key": "\ud800"},
        {"value": b"x", "event_time_ms": "now"},
        {"value": b"x", "event_time_ms": True},
        {"value": b"x", "event_time_ms": 1_700_000_000_000_000_000},
        {"value": b"x", "event_time_ms": -(2**62)},
        {"value": b"x", "properties": {"k": 1}},
        {"value": b"x", "properties": [("k", "v")]},
    ],
)
async def test_invalid_argument_fails_only_its_message(
    cluster: FakeCluster, client: oncelog.AsyncClient, arguments: dict[str, object]
) -> None:
    """InvalidArgument naming the field, before the message joins a batch with others."""
    producer = await client.create_producer("flights")
    fine = producer.send_nowait(b"fine")
    with pytest.raises(InvalidArgument):
        producer.send_nowait(**arguments)  # type: ignore[call-overload]
    await fine
    assert cluster.topic("flights").values() == [b"fine"]


async def test_lists_of_unequal_length_are_refused(client: oncelog.AsyncClient) -> None:
    """Each column has one item for each value."""
    producer = await client.create_producer("flights")
    with pytest.raises(InvalidArgument):
        await producer.send_many([b"a", b"b"], sequence_ids=[1])
    with pytest.raises(InvalidArgument):
        await producer.send_many([b"a"], keys=[b"k", None])
    with pytest.raises(InvalidArgument):
        await producer.send_many([b"a", "b"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": b"abc"},
        {"values": "abc"},
        {"values": 3},
        {"values": [b"a"], "sequence_ids": 1},
        {"values": [b"a"], "keys": "k"},
        {"values": [b"a"], "event_times_ms": 5},
        {"values": [b"a"], "properties": {"k": "v"}},
    ],
)
async def test_column_that_is_not_a_list_is_refused(client: oncelog.AsyncClient, arguments: dict[str, object]) -> None:
    """The error's field names the column."""
    producer = await client.create_producer("flights")
    with pytest.raises(InvalidArgument) as caught:
        await producer.send_many(**arguments)  # type: ignore[arg-type]
    assert caught.value.details["field"] == list(arguments)[-1]


async def test_closed_client_raises_client_closed(cluster: FakeCluster) -> None:
    """Producers of the closed client raise it too."""
    client = await oncelog.connect(cluster.url)
    producer = await client.create_producer("flights")
    await client.close()
    with pytest.raises(ProducerClosed):
        await producer.send(b"x")
    with pytest.raises(ClientClosed):
        await client.create_producer("flights")


@pytest.mark.parametrize("name", ["", "x" * 1_000, "a/b", "nul\x00"])
async def test_invalid_name_is_refused_before_any_request(client: oncelog.AsyncClient, name: str) -> None:
    """Topic and producer names; the error names the field."""
    with pytest.raises(InvalidName):
        await client.create_producer(name)
    if name != "a/b":
        with pytest.raises(InvalidName):
            await client.create_producer("flights", producer_name=name)


@pytest.mark.parametrize(
    "options",
    [
        {"sequence_mode": "random"},
        {"on_conflict": "hope"},
        {"compression": "magic"},
        {"send_timeout": 0},
        {"batch_bytes_max": 0},
        {"batch_bytes_max": 6 * 1024 * 1024},
        {"pending_bytes_max": 0},
        {"initial_sequence_id": -2},
        {"initial_sequence_id": "7"},
        {"sequence_mode": ["monotonic"]},
        {"sequence_mode": None},
        {"send_timeout": "1 s"},
        {"send_timeout": True},
        {"batch_bytes_max": "1"},
        {"pending_bytes_max": 1.5},
        {"on_unverified": 1},
        {"on_behalf_of": "importer"},
    ],
)
async def test_invalid_producer_option_is_refused(client: oncelog.AsyncClient, options: dict[str, object]) -> None:
    """The error's field names the option."""
    with pytest.raises(InvalidArgument) as caught:
        await client.create_producer("flights", **options)  # type: ignore[arg-type]
    assert caught.value.details["field"] in options


@pytest.mark.parametrize(
    "options",
    [
        {"start": 5},
        {"start": None},
        {"start": "earliest"},
        {"start": datetime(2026, 1, 31)},  # noqa: DTZ001 - that is the case
        {"inclusive": 1},
        {"on_corrupt": None},
        {"on_corrupt": []},
    ],
)
async def test_invalid_reader_option_is_refused(client: oncelog.AsyncClient, options: dict[str, object]) -> None:
    """Refused before a request is sent; `start=5` raised AttributeError."""
    with pytest.raises(InvalidArgument) as caught:
        await client.create_reader("flights", **options)  # type: ignore[arg-type]
    assert caught.value.details["field"] in options


async def test_start_in_the_future_is_told(client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """The reader would not wait for that time. An hour is a difference between two clocks."""
    await client.create_producer("flights")
    await client.create_reader("flights", start=datetime.now(UTC) + timedelta(minutes=50))
    assert "ahead of this machine's clock" not in caplog.text
    await client.create_reader("flights", start=datetime.now(UTC) + timedelta(days=400))
    assert "is 9600 hours ahead of this machine's clock" in caplog.text


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
async def test_invalid_read_timeout_is_refused(client: oncelog.AsyncClient, timeout: float) -> None:
    await client.create_producer("flights")
    reader = await client.create_reader("flights")
    for read in (reader.read_next, reader.read_batch):
        with pytest.raises(InvalidArgument) as caught:
            await read(timeout=timeout)
        assert caught.value.details["field"] == "timeout"


@pytest.mark.parametrize(
    "options",
    [
        {"url": None},
        {"url": b"oncelog://127.0.0.1:1"},
        {"token": 7},
        {"tls_ca_file": 7},
        {"allow_plaintext_token": "yes"},
        {"operation_timeout": 0},
        {"operation_timeout": "30"},
    ],
)
async def test_invalid_connect_option_is_refused(options: dict[str, object]) -> None:
    """The error's field names the option; `connect(None)` raised AttributeError."""
    with pytest.raises(InvalidArgument) as caught:
        await oncelog.connect(**{"url": "oncelog://127.0.0.1:1", **options})  # type: ignore[arg-type]
    assert caught.value.details["field"] in options


@pytest.mark.parametrize("topic", [None, 7, b"flights"])
async def test_topic_that_is_not_a_string_is_refused(client: oncelog.AsyncClient, topic: str) -> None:
    for call in (client.create_producer, client.create_reader, client.last_message_id):
        with pytest.raises(InvalidName, match="topic"):
            await call(topic)


async def test_unknown_topic_raises_topic_not_found_without_auto_creation(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """With auto-creation off."""
    cluster.knobs.may_create = False
    with pytest.raises(TopicNotFound):
        await client.create_producer("flights")


async def test_producer_name_cannot_change_its_mode(client: oncelog.AsyncClient) -> None:
    """A name bound to one mode is refused in the other."""
    await client.create_producer("flights", producer_name="importer")
    with pytest.raises(ModeMismatch):
        await client.create_producer("flights", producer_name="importer", sequence_mode="contiguous")


async def test_unreachable_cluster_raises_deadline_exceeded() -> None:
    """DeadlineExceeded after operation_timeout, with the reason."""
    async with await oncelog.connect("oncelog://127.0.0.1:1", operation_timeout=3) as client:
        with pytest.raises(DeadlineExceeded, match=r"127\.0\.0\.1:1"):
            await client.create_producer("flights")


@pytest.mark.parametrize(
    "url", ["", "pulsar://x", "oncelog://", "oncelog://a:b", "oncelog://a:99999", "oncelog://a,,b"]
)
async def test_invalid_url_is_refused(url: str) -> None:
    """The error message shows the expected form."""
    with pytest.raises(InvalidArgument):
        await oncelog.connect(url)


async def test_errors_name_what_was_given_and_what_is_accepted(client: oncelog.AsyncClient) -> None:
    """`EARLIEST` alone is no name in a user's program, and a key was said to be bytes only."""
    producer = await client.create_producer("flights")
    with pytest.raises(InvalidArgument, match="key must be bytes or str, not int"):
        await producer.send(b"x", key=5)  # type: ignore[arg-type]
    for wrong in (client.create_reader("flights", start="earliest"), client.search("flights", start="latest")):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"start must be oncelog\.EARLIEST, oncelog\.LATEST, .*, not str"):
            await wrong
    for url, shown in (
        ("pulsar://x", "'pulsar://x'"),
        ("http://me:secret@x", "'http://…@x'"),
        ("oncelog://", "'oncelog://'"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(shown)) as caught:
            await oncelog.connect(url)
        assert "secret" not in caught.value.message


async def test_port_of_http_is_answered_with_the_port_of_clients() -> None:
    """REST and the console are the address that a user has seen last."""

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with oncelog.connect(f"oncelog://127.0.0.1:{port}", operation_timeout=5) as client:
            with pytest.raises(DeadlineExceeded, match="does not speak gRPC; clients use port 6650"):
                await client.create_producer("flights")


async def test_client_that_reaches_nothing_says_so_before_its_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    """A newcomer saw nothing for 30 s, and then the error."""

    async def said(text: str) -> None:
        await until(lambda: text in caplog.text, DEADLINE_S, waiting_for=text)

    async with oncelog.connect("oncelog://127.0.0.1:1", operation_timeout=DEADLINE_S) as client:
        for open_one, what in (
            (client.create_producer("flights"), "a producer on public/default/flights"),
            (client.subscribe("flights", subscription="s"), "the topic public/default/flights"),
        ):
            task = asyncio.create_task(open_one)
            await said(f"still waiting for {what}, for another")
            task.cancel()
            await asyncio.wait([task])
    assert "cannot reach 127.0.0.1:1 (a metadata service): connection refused" in caplog.text
