"""The SDK's producer over real gRPC, against the fake cluster."""

import asyncio
import sys
from typing import Literal

import pytest

import oncelog
from oncelog.core.errors import (
    CompressionUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    NotEnoughStorageNodes,
    OncelogError,
    ProducerBusy,
    ProducerClosed,
    ProducerFenced,
    SequenceGap,
    SessionEnded,
    StaleSequence,
    TooManyRequests,
    UnknownProducer,
)
from oncelog.core.sdk.owner_attempts import SessionTimerFired, TimerKey, TimerKind
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


async def test_stored_message_has_its_message_id(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The first use of the SDK, field by field."""
    producer = await client.create_producer("flights", producer_name="importer")
    assert (producer.producer_name, producer.last_sequence_id) == ("importer", -1)
    result = await producer.send(b"hello", sequence_id=42)
    assert (result.sequence_id, result.duplicate, result.verified) == (42, False, True)
    assert str(result.message_id) == "3:1:0"
    assert producer.last_sequence_id == 42
    again = await producer.send(b"hello", sequence_id=42)
    assert (again.duplicate, again.verified, again.message_id) == (True, True, result.message_id)
    assert cluster.topic("flights").values() == [b"hello"]


async def test_messages_of_one_loop_pass_become_one_batch(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """There is no linger: messages sent in one pass share a batch, and each has its own result."""
    producer = await client.create_producer("flights")
    results = await asyncio.gather(*[producer.send(b"%d" % i) for i in range(100)])
    assert [result.sequence_id for result in results] == list(range(100))
    assert [result.message_id.batch_index for result in results if result.message_id] == list(range(100))
    assert cluster.seen.frames[-1] == 1
    assert cluster.topic("flights").values() == [b"%d" % i for i in range(100)]


async def test_list_is_split_into_batches_and_answered_as_one(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Lists with explicit ids, contiguous and with gaps; sending the list again stores nothing."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=1_000)
    values = [b"%04d" % i for i in range(1_000)]
    ids = [i * 3 for i in range(1_000)]
    result = await producer.send_many(values, sequence_ids=ids)
    assert (result.first, result.last, len(result), result.duplicates) == (0, 2997, 1_000, 0)
    assert len({each.position for each in result.message_ids if each}) == 8
    again = await producer.send_many(values, sequence_ids=ids)
    assert again.duplicates == 1_000
    assert list(again.message_ids) == list(result.message_ids)
    assert again.message_ids[-1] == result.message_ids[999]
    assert cluster.topic("flights").values() == values
    empty = await producer.send_many([], sequence_ids=[])
    assert (len(empty), empty.first, list(empty.message_ids)) == (0, -1, [])


async def test_partly_stored_list_has_an_exact_result_for_each_message(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The stored head is a duplicate at its original position, the tail is stored, in one batch."""
    producer = await client.create_producer("flights", producer_name="importer")
    first = await producer.send_many([b"a", b"b"], sequence_ids=[1, 2])
    both = await producer.send_many([b"a", b"b", b"c"], sequence_ids=[1, 2, 3])
    assert (both.duplicates, len(both)) == (2, 3)
    assert list(both.message_ids)[:2] == list(first.message_ids)
    assert cluster.topic("flights").values() == [b"a", b"b", b"c"]


async def test_messages_are_stored_in_the_order_of_their_send_calls(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """send, send_nowait and send_many of one producer never overtake each other."""
    producer = await client.create_producer("flights", batch_bytes_max=500)
    futures = [producer.send_nowait(b"%d" % i) for i in range(10)]
    many = asyncio.ensure_future(producer.send_many([b"%d" % i for i in range(10, 500)]))
    await until(many.done, DEADLINE_S)
    futures.append(producer.send_nowait(b"500"))
    await producer.flush()
    assert all(future.done() for future in futures)
    assert (await many).first == 10
    assert cluster.topic("flights").values() == [b"%d" % i for i in range(501)]


async def test_restarted_producer_continues_and_fences_the_older_instance(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """last_sequence_id is where to continue; the older instance fails permanently with ProducerFenced."""
    zombie = await client.create_producer("flights", producer_name="importer")
    await zombie.send_many([b"a", b"b"])
    producer = await client.create_producer("flights", producer_name="importer")
    assert producer.last_sequence_id == 1
    assert (await producer.send(b"c")).sequence_id == 2
    with pytest.raises(ProducerFenced):
        await zombie.send(b"x")
    with pytest.raises(ProducerFenced):
        zombie.send_nowait(b"x")
    with pytest.raises(ProducerFenced):
        await zombie.send_many([b"x"])
    assert isinstance(zombie.failure, ProducerFenced)
    assert cluster.topic("flights").values() == [b"a", b"b", b"c"]


async def test_opening_a_busy_name_with_refuse_fails(client: oncelog.AsyncClient) -> None:
    """on_conflict="refuse" fences no producer."""
    holder = await client.create_producer("flights", producer_name="importer")
    with pytest.raises(ProducerBusy):
        await client.create_producer("flights", producer_name="importer", on_conflict="refuse")
    await holder.send(b"still mine")
    await holder.close()


async def test_closed_producer_is_gone_for_others(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Another process may open the name with on_conflict="refuse" as soon as the close has returned. An owner that does
    not answer keeps nobody waiting."""
    for number in range(1, 4):
        producer = await client.create_producer("flights", producer_name="importer", on_conflict="refuse")
        await producer.send(b"x")
        await producer.close()
        assert len(cluster.seen.closed_sessions) == number
    producer = await client.create_producer("flights", producer_name="importer")
    cluster.knobs.gate.clear()
    await asyncio.wait_for(producer.close(), DEADLINE_S)
    cluster.knobs.gate.set()


async def test_initial_sequence_id_is_the_last_one_used(
    client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The first message gets the next id; -1 restarts at 0. Ids that are stored already are announced."""
    producer = await client.create_producer("flights", producer_name="a", initial_sequence_id=99)
    assert (await producer.send(b"x")).sequence_id == 100
    assert (producer.repeats_ahead, caplog.records) == (0, [])
    replayed = await client.create_producer("flights", producer_name="a", initial_sequence_id=99)
    (warning,) = caplog.records
    assert (warning.levelname, replayed.repeats_ahead) == ("WARNING", 1)
    for word in ("'a' on public/default/flights", "after sequence id 99", "up to 100", "1 messages", "repetitions"):
        assert word in warning.message
    again = await replayed.send(b"x")
    assert again.duplicate
    assert "content_differs=False" in repr(again)
    assert replayed.repeats_ahead == 0
    with pytest.raises(SequenceGap):
        await client.create_producer("flights", producer_name="b", initial_sequence_id=5, sequence_mode="contiguous")


async def test_application_does_not_notice_a_takeover_with_the_sync_client(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The owner is killed again and again under load, with answers lost: everything is stored once, in order."""
    producer = await client.create_producer("flights", sequence_mode="contiguous", batch_bytes_max=2_000)
    sending = [
        asyncio.ensure_future(producer.send_many([b"%d" % i for i in range(start, start + 1_000)]))
        for start in range(0, 20_000, 1_000)
    ]
    for round_number in range(4):
        target = len(cluster.seen.frames) + 2
        await until(lambda: sending[-1].done() or len(cluster.seen.frames) > target, DEADLINE_S)  # noqa: B023  # asked at once
        cluster.knobs.lose_answers = round_number
        await cluster.take_over()
    results = await asyncio.gather(*sending)
    assert [result.first for result in results] == list(range(0, 20_000, 1_000))
    assert cluster.topic("flights").values() == [b"%d" % i for i in range(20_000)]


async def test_resend_after_a_lost_answer_is_marked_resent(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The message is stored once, and its result states that the duplicate was the producer's own resend."""
    producer = await client.create_producer("flights")
    cluster.knobs.lose_answers = 1
    result = await producer.send(b"once")
    assert (result.duplicate, result.resent) == (True, True)
    assert result.message_id is not None
    assert cluster.topic("flights").values() == [b"once"]


@pytest.mark.parametrize("error", [SessionEnded(), UnknownProducer()])
async def test_batch_refused_with_a_retriable_error_is_resent(
    cluster: FakeCluster, client: oncelog.AsyncClient, error: OncelogError
) -> None:
    """The SDK retries; the application sees no error."""
    producer = await client.create_producer("flights")
    refusals = [error, error]
    cluster.knobs.refuse_batch = lambda _: refusals.pop() if refusals else None
    await producer.send_many([b"a", b"b"])
    assert refusals == []
    assert cluster.topic("flights").values() == [b"a", b"b"]


@pytest.mark.hazard("id-between-stored-ids")
async def test_stale_id_fails_only_its_message(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """An id below the mark that was never stored is an error, never an acknowledged loss;
    others go on.

    Those that share its batch have each a truth of its own: whoever was told "never stored" of 2 would store it twice.
    """
    producer = await client.create_producer("flights", producer_name="importer")
    before = await producer.send_many([b"2", b"3", b"5"], sequence_ids=[2, 3, 5])
    known, stale, fine = [producer.send_nowait(b"%d" % i, sequence_id=i) for i in (2, 4, 6)]
    await producer.flush()
    assert ((await known).duplicate, (await known).message_id) == (True, before.message_ids[0])
    with pytest.raises(StaleSequence) as caught:
        await stale
    assert (caught.value.stored, caught.value.details) == (False, {"high_water": 6})
    assert not (await fine).duplicate
    assert cluster.topic("flights").values() == [b"2", b"3", b"5", b"6"]


async def test_list_with_a_stale_id_has_the_result_of_each_message(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The error carries the whole list: which are duplicates, which never were, which are stored now."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=4)
    before = await producer.send_many([b"2", b"3", b"5"], sequence_ids=[2, 3, 5])
    assert [before.duplicate_ranges, before.failed_ranges, before.unverified_ranges, before.resent_ranges] == [[]] * 4
    ids = [1, 2, 4, 5, 6, 9, 11]
    with pytest.raises(StaleSequence, match="2 of 7 messages failed") as caught:
        await producer.send_many([b"%d" % i for i in ids], sequence_ids=ids)
    result: oncelog.BatchResult = caught.value.result
    assert caught.value.stored is None  # of others of the list it is not False
    assert (result.duplicate_ranges, result.failed_ranges) == ([range(1, 2), range(3, 4)], [range(1), range(2, 3)])
    told = [each if isinstance(each, OncelogError) else (each.sequence_id, each.duplicate) for each in result.results]
    assert [type(each) for each in told[0:3:2]] == [StaleSequence, StaleSequence]
    assert [each.stored for each in told if isinstance(each, OncelogError)] == [False, False]
    assert [each for each in told if isinstance(each, tuple)] == [
        (2, True),
        (5, True),
        (6, False),
        (9, False),
        (11, False),
    ]
    assert (result.message_ids[0], result.message_ids[1]) == (None, before.message_ids[0])
    assert cluster.topic("flights").values() == [b"2", b"3", b"5", b"6", b"9", b"11"]
    with pytest.raises(StaleSequence) as alone:
        await producer.send_many([b"4"], sequence_ids=[4])
    assert alone.value.stored is False


async def test_second_send_of_an_id_is_a_duplicate_and_not_resent(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Its answer was lost, and the SDK sent it again. But the first send stored the message."""
    producer = await client.create_producer("flights", producer_name="importer")
    first = await producer.send_many([b"0", b"1"], sequence_ids=[0, 1])
    cluster.knobs.lose_answers = 1
    second = await producer.send_many([b"1", b"2"], sequence_ids=[1, 2])
    assert (second.duplicate_ranges, second.resent_ranges) == ([range(2)], [range(1, 2)])
    assert second.unknown_ranges == [range(1)], "what this send has stored itself is known"
    assert second.message_ids[0] == first.message_ids[1]


async def test_repeated_list_tells_own_resends_from_earlier_instances(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A former instance stored the head; this one stored the tail, and the answer was lost."""
    former = await client.create_producer("flights", producer_name="importer")
    await former.send_many([b"0", b"1"], sequence_ids=[0, 1])
    producer = await client.create_producer("flights", producer_name="importer")
    cluster.knobs.lose_answers = 1
    result = await producer.send_many([b"%d" % i for i in range(4)], sequence_ids=range(4))
    assert (result.duplicate_ranges, result.resent_ranges) == ([range(4)], [range(2, 4)])
    assert [each.resent for each in result.results if isinstance(each, oncelog.SendResult)] == [
        False,
        False,
        True,
        True,
    ]
    assert cluster.topic("flights").values() == [b"0", b"1", b"2", b"3"]


async def test_list_with_an_invalid_row_has_an_unknown_outcome(client: oncelog.AsyncClient) -> None:
    """Rows before the invalid one are stored: stored=False would make the application send them again."""
    producer = await client.create_producer("flights")
    values = [b"x" * 1_000 for _ in range(3_000)]
    with pytest.raises(InvalidArgument, match="of 3000 messages failed") as caught:
        await producer.send_many(values, keys=[None] * 2_999 + [5])  # type: ignore[list-item]
    assert caught.value.stored is None
    assert "stored nothing" not in caught.value.message
    result: oncelog.BatchResult = caught.value.result
    assert result.count == 3_000
    assert 0 < sum(map(len, result.failed_ranges)) < 3_000


async def test_errors_report_whether_the_message_may_be_stored(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """False: it was never sent, or it was refused. None: it was sent, and the outcome is unknown."""
    producer = await client.create_producer("flights", producer_name="importer", pending_bytes_max=10_000)
    with pytest.raises(OncelogError) as too_large:
        producer.send_nowait(bytes(6 << 20))
    assert too_large.value.stored is False
    cluster.knobs.gate.clear()
    seen = len(cluster.seen.frames)
    sent = producer.send_nowait(b"sent")
    await until(lambda: len(cluster.seen.frames) > seen, DEADLINE_S)
    with pytest.raises(TooManyRequests) as refused:
        producer.send_nowait(bytes(20_000))
    assert refused.value.stored is False
    gathered = producer.send_nowait(b"gathered")
    await producer.close(flush=False)
    for future, stored, words in ((sent, None, "is unknown"), (gathered, False, "stored nothing")):
        with pytest.raises(ProducerClosed, match=words) as caught:
            await future
        assert caught.value.stored is stored
    with pytest.raises(ProducerClosed) as late:
        await producer.send(b"late")
    assert late.value.stored is False
    cluster.knobs.gate.set()


async def test_pending_memory_is_bounded(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """While the owner does not respond, send_nowait refuses, and send and send_many wait; all messages are stored in
    the end.
    """
    producer = await client.create_producer("flights", pending_bytes_max=10_000, batch_bytes_max=1_000)
    cluster.knobs.gate.clear()
    given: list[asyncio.Future[oncelog.SendResult]] = []
    with pytest.raises(TooManyRequests):
        given.extend(producer.send_nowait(b"x" * 100) for _ in range(1_000))
    assert 10 < len(given) < 101
    waiting = asyncio.ensure_future(producer.send(b"y" * 100))
    many = asyncio.ensure_future(producer.send_many([b"z" * 100] * 500))
    await until(lambda: len(cluster.seen.frames) > 1, DEADLINE_S)
    assert producer.pending_bytes <= 10_000
    assert not waiting.done()
    with pytest.raises(TooManyRequests):
        producer.send_nowait(b"")
    cluster.knobs.gate.set()
    await asyncio.gather(waiting, many, *given)
    assert len(cluster.topic("flights").values()) == len(given) + 501
    assert producer.pending_bytes == 0


async def test_send_timeout_leaves_the_outcome_unknown(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The caller gets DeadlineExceeded; the message may still be stored later, in order."""
    producer = await client.create_producer("flights", send_timeout=0.05)
    cluster.knobs.gate.clear()
    with pytest.raises(DeadlineExceeded):
        await producer.send(b"late")
    with pytest.raises(DeadlineExceeded):
        await producer.send_many([b"later"])
    cluster.knobs.gate.set()
    await until(lambda: len(cluster.topic("flights").values()) == 2, DEADLINE_S)
    assert cluster.topic("flights").values() == [b"late", b"later"]


async def test_send_timeout_tells_what_the_producer_waits_for(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Such as full disks; it used to say only that there was no answer."""
    full = NotEnoughStorageNodes("storage nodes have no space: a, b")
    producer = await client.create_producer("flights", send_timeout=600)
    assert producer.last_error is None
    cluster.knobs.refuse_batch = lambda _: SessionEnded("a write failed")
    cluster.knobs.refuse_open = lambda _: full
    waiting = asyncio.ensure_future(producer.send(b"late"))
    await until(lambda: isinstance(producer.last_error, NotEnoughStorageNodes), DEADLINE_S)
    producer._parts[0].driver.feed(SessionTimerFired(TimerKey(TimerKind.SEND, 1)))
    with pytest.raises(DeadlineExceeded, match=full.message) as raised:
        await waiting
    assert (raised.value.details["reason"], raised.value.stored) == (full.code, None)
    cluster.knobs.refuse_open = lambda _: None
    cluster.knobs.refuse_batch = lambda _: None
    await until(lambda: cluster.topic("flights").values() == [b"late"], DEADLINE_S)
    assert producer.last_error is None


async def test_cancelled_send_may_still_be_stored(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Its batch continues, and the other messages of the batch get their results."""
    producer = await client.create_producer("flights")
    first, second = producer.send_nowait(b"a"), producer.send_nowait(b"b")
    first.cancel()
    assert (await second).sequence_id == 1
    assert cluster.topic("flights").values() == [b"a", b"b"]


async def test_close_flushes_and_refuses_later_sends(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Leaving the context waits for pending messages; later calls raise ProducerClosed."""
    async with await client.create_producer("flights") as producer:
        future = producer.send_nowait(b"a")
    assert future.done()
    assert not (await future).duplicate
    for wrong in (producer.send(b"x"), producer.send_many([b"x"])):
        with pytest.raises(ProducerClosed):
            await wrong
    with pytest.raises(ProducerClosed):
        producer.send_nowait(b"x")
    await producer.close()
    await until(lambda: cluster.seen.closed_sessions, DEADLINE_S)


async def test_leaving_by_an_exception_does_not_wait(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Pending messages fail with ProducerClosed."""
    producer = await client.create_producer("flights")
    cluster.knobs.gate.clear()
    future = producer.send_nowait(b"a")
    await producer.__aexit__(KeyError, KeyError(), None)
    with pytest.raises(ProducerClosed):
        await future
    cluster.knobs.gate.set()


@pytest.mark.parametrize("compression", ["zlib", "zstd", "lz4"])
async def test_every_column_and_compression_round_trip(
    cluster: FakeCluster, client: oncelog.AsyncClient, compression: Literal["zlib", "zstd", "lz4"]
) -> None:
    """Keys, event times and properties of single messages and of lists, compressed."""
    producer = await client.create_producer("flights", compression=compression)
    plain = producer.send_nowait(b"plain")
    await producer.send(b"full", key="k", event_time_ms=5, properties={"a": "b"})
    await plain
    await producer.send_many([b"l1", b"l2"], keys=["x", None], event_times_ms=[None, 7], properties=[{}, {"p": "q"}])
    reader = await client.create_reader("flights")
    messages = [await reader.read_next(timeout=DEADLINE_S) for _ in range(4)]
    seen = [(m.value, m.key, m.event_time_ms, dict(m.properties)) for m in messages]
    assert seen == [
        (b"plain", None, None, {}),
        (b"full", b"k", 5, {"a": "b"}),
        (b"l1", b"x", None, {}),
        (b"l2", None, 7, {"p": "q"}),
    ]


@pytest.mark.hazard("codec-taken-for-damage")
@pytest.mark.parametrize(("compression", "module"), [("zstd", "zstandard"), ("lz4", "lz4.frame")])
async def test_missing_library_of_a_compression_names_the_extra(
    cluster: FakeCluster,
    client: oncelog.AsyncClient,
    compression: Literal["zstd", "lz4"],
    module: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a producer before it sends anything. At a reader and a consumer each time, also if they skip damage: nothing
    is passed over or acknowledged, and with the library all messages are there."""
    producer = await client.create_producer("flights")
    await producer.send(b"plain")
    packer = await client.create_producer("flights", compression=compression)
    await packer.send(b"packed")
    reader = await client.create_reader("flights", on_corrupt="skip")
    consumer = await client.subscribe("flights", subscription="s", start=oncelog.EARLIEST, on_corrupt="skip")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, module, None)  # as if it were not installed
        said = rf"compression {compression} needs a library.*pip install 'oncelog\[{compression}\]'"
        with pytest.raises(CompressionUnavailable, match=said) as raised:
            await client.create_producer("flights", compression=compression)
        assert raised.value.details["extra"] == compression
        assert (await reader.read_next(timeout=DEADLINE_S)).value == b"plain"
        assert (await consumer.receive(timeout=DEADLINE_S)).value == b"plain"
        for _ in range(2):
            with pytest.raises(CompressionUnavailable, match=said):
                await reader.read_next(timeout=DEADLINE_S)
            with pytest.raises(CompressionUnavailable, match=said):
                await consumer.receive(timeout=DEADLINE_S)
    assert (await reader.read_next(timeout=DEADLINE_S)).value == b"packed"
    assert (await consumer.receive(timeout=DEADLINE_S)).value == b"packed"
    assert reader.skipped.total == consumer.skipped.total == 0


async def test_many_producers_share_one_stream(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Their batches share frames, and each batch has its own answer."""
    producers = await asyncio.gather(*[client.create_producer(f"topic-{i % 5}") for i in range(50)])
    frames_before = len(cluster.seen.frames)
    for _ in range(5):
        await asyncio.gather(*[producer.send(b"x") for producer in producers])
    assert sum(cluster.seen.frames[frames_before:]) == 250
    assert len(cluster.seen.frames) - frames_before < 100
    assert [len(cluster.topic(f"topic-{i}").values()) for i in range(5)] == [50] * 5
