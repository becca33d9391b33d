"""Owners and producers that were paused and replaced: when they resume, they store nothing and get an error."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import oncelog
from oncelog.core.errors import (
    InvalidArgument,
    NotOwner,
    OncelogError,
    ProducerExpired,
    ProducerFenced,
    StaleSequence,
    UnknownProducer,
)
from oncelog.core.formats.batch import encode_deltas
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import Generation, ProducerId
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE
from oncelog.wire.owner_pb2 import LastMessageRequest
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.cluster.kills import end, idle, just_seen, kill
from tests.cluster.loads import Following, Loads, read_all
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until
from tests.cluster.wire_client import PublishWire, batch_of, instance_of

pytestmark = pytest.mark.asyncio

SETTINGS = {"session_timeout_ms": SESSION_TIMEOUT_MS, "ledger_entries_max": 40, "snapshot_entries_max": 30}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ledgers roll all the time: a paused owner may be at any step of a roll (hazard stale-record-after-conflict).
    Sessions end where a test ends them."""
    directory = tmp_path_factory.mktemp("zombies")
    with Cluster.running(directory, **SETTINGS) as own:
        yield own


def full(topic: str) -> str:
    return f"public/default/{topic}"


@pytest.mark.hazard("stale-record-after-conflict")
async def test_paused_owner_acknowledges_nothing_when_it_resumes(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Frames in its socket are not stored, its clients get NotOwner, and the messages of the next owner stand."""
    topic = "paused-owner"
    loads = await Loads.of_two(client, topic)
    async with Following.running(client, topic) as following:
        async with loads.running():
            owner = await cluster.owner_of(topic)
            before = await cluster.stats(topic)
            async with PublishWire.to(cluster.serving(owner)) as wire:
                stale = await wire.granted(full(topic), before["topic_id"], "left-behind")
                instance = instance_of(stale)
                await wire.send(stale.session, 1, batch_of(instance, 0, [b"before"]))
                (stored,) = await wire.stored(stale.session, 1)
                assert stored.kind is ResultKind.STORED
                with cluster.stopped(owner):
                    for number in range(1, 4):
                        await wire.send(stale.session, 1 + number, batch_of(instance, number, [b"too late"]))
                    await cluster.expire(owner)
                    after = await cluster.served_by_another(topic, before["owner_epoch"])
                assert isinstance(await wire.fate(stale.session, 2), NotOwner)
                assert list(wire.answers[stale.session]) == [1]
                refused = await wire.open(full(topic), before["topic_id"], "left-behind")
                assert isinstance(refused, NotOwner)
            await loads.answered_more()
        stored_messages = await read_all(client, topic)
        followed = await following.has_all(len(stored_messages))
    assert after["owner"] != before["owner"]
    assert [m.message_id for m in followed] == [m.message_id for m in stored_messages]
    assert [m.value for m in stored_messages if m.producer_name == "left-behind"] == [b"before"]
    loads.check([message for message in stored_messages if message.producer_name != "left-behind"], whole=False)
    await cluster.healed()


@pytest.mark.hazard("deposed-owner-refuses")
async def test_deposed_owner_that_never_writes_is_notified_by_its_clients(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """A stale route leads to it: a request with a higher epoch than its own makes it check and step down (hazard
    deposed-owner-refuses)."""
    topic = "stale-route"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"first", sequence_id=0)
    owner = await cluster.owner_of(topic)
    before = await cluster.stats(topic)
    address = cluster.serving(owner)
    with cluster.stopped(owner):
        await cluster.expire(owner)
        after = await cluster.served_by_another(topic, before["owner_epoch"])
        await producer.send(b"second", sequence_id=1)
    async with PublishWire.to(address) as wire:
        for _ in range(2):
            refused = await wire.open(
                full(topic), before["topic_id"], "importer", owner_epoch_seen=after["owner_epoch"]
            )
            assert isinstance(refused, NotOwner)
    assert (await cluster.stats(topic))["owner_epoch"] == after["owner_epoch"]
    assert [m.value for m in await read_all(client, topic)] == [b"first", b"second"]
    await cluster.healed()


async def test_reader_at_a_deposed_owner_continues(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """Its stream is intact and nothing is written there: the owner itself finds that it lost its session."""
    topic = "left-reader"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"first", sequence_id=0)
    async with Following.running(client, topic) as following:
        await following.has_all(1)
        owner = await cluster.owner_of(topic)
        before = await cluster.stats(topic)
        with cluster.stopped(owner):
            await cluster.expire(owner)
            await cluster.served_by_another(topic, before["owner_epoch"])
        async with await oncelog.connect(cluster.url) as elsewhere:
            other = await elsewhere.create_producer(topic, producer_name="other")
            await other.send(b"second", sequence_id=0)
        assert [message.value for message in await following.has_all(2)] == [b"first", b"second"]
    await cluster.healed()


@pytest.mark.hazard("deposed-owner-refuses")
async def test_request_to_a_deposed_owner_gets_no_outdated_answer(
    cluster: Cluster, client: oncelog.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request waits in the socket of a paused owner, which answers when it resumes (hazard
    deposed-owner-refuses)."""
    topic = "asked-late"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"first", sequence_id=0)
    owner = await cluster.owner_of(topic)
    before = await cluster.stats(topic)
    request = LastMessageRequest(topic=full(topic), topic_id=before["topic_id"])
    # Longer than the takeover lasts: a connection that keep-alive ends would bring no answer at all. Only of this one.
    with monkeypatch.context() as patched:
        patched.setattr("oncelog.rpc.options._KEEPALIVE_TIMEOUT_MS", 120_000)
        patient = Channel(cluster.serving(owner))
    async with patient as channel:
        assert (await channel.call(LAST_MESSAGE, request, timeout_ms=10_000)).next_index == 1
        with cluster.stopped(owner):
            asked = [asyncio.ensure_future(channel.call(LAST_MESSAGE, request, timeout_ms=60_000)) for _ in range(5)]
            await cluster.expire(owner)
            await cluster.served_by_another(topic, before["owner_epoch"])
            await producer.send(b"second", sequence_id=1)
            assert (await client.last_message_id(topic)) is not None
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(answer, NotOwner), answer
    await cluster.healed()


async def test_deposed_owner_refuses_no_request_from_outdated_state(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """Its view of gaps, generations and ids may be outdated: it reads its record before it refuses a request."""
    topic = "untrue"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"first", sequence_id=10)
    owner = await cluster.owner_of(topic)
    before = await cluster.stats(topic)
    address = cluster.serving(owner)
    with cluster.stopped(owner):
        await cluster.expire(owner)
        await cluster.served_by_another(topic, before["owner_epoch"])
    async with PublishWire.to(address) as wire:
        stranger = ProducerInstance(ProducerId(987_654), Generation(1))
        assert isinstance(await wire.open(full(topic), before["topic_id"], "importer", resume=stranger), NotOwner)
    await cluster.healed()


@contextmanager
def publishing_process(cluster: Cluster, topic: str) -> Iterator["subprocess.Popen[str]"]:
    """A producer `importer` in a process of its own. It prints each stored id, and at the end the reason."""
    program = (
        "import itertools, sys, oncelog\n"
        "with oncelog.Client(sys.argv[1]) as client:\n"
        "    producer = client.create_producer(sys.argv[2], producer_name='importer')\n"
        "    try:\n"
        "        for i in itertools.count(producer.last_sequence_id + 1):\n"
        "            result = producer.send(b'importer %d' % i, sequence_id=i)\n"
        "            print(i, int(result.duplicate), flush=True)\n"
        "    except oncelog.errors.OncelogError as error:\n"
        "        print(type(error).__name__, flush=True)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, cluster.url, topic], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        end(process)
        assert process.stdout is not None
        process.stdout.close()


async def lines_of(process: "subprocess.Popen[str]", count: int) -> list[str]:
    """The next lines of its output."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return [(await asyncio.to_thread(process.stdout.readline)).strip() for _ in range(count)]


def rest_of(process: "subprocess.Popen[str]") -> list[str]:
    """All lines until its end, without an incomplete last line."""
    assert process.stdout is not None
    return process.stdout.read().split("\n")[:-1]


async def test_paused_producer_process_is_fenced_by_its_successor(
    cluster: Cluster, client: oncelog.AsyncClient
) -> None:
    """It resumes with a message to send: ProducerFenced, and nothing of it is stored after the fence."""
    topic = "paused-producer"
    with publishing_process(cluster, topic) as process:
        await lines_of(process, 50)
        process.send_signal(signal.SIGSTOP)
        successor = await client.create_producer(topic, producer_name="importer")
        first = successor.last_sequence_id + 1
        assert first >= 50
        values = [b"successor %d" % number for number in range(first, first + 20)]
        await successor.send_many(values, sequence_ids=range(first, first + 20))
        process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(DEADLINE_S):
            rest = await asyncio.to_thread(rest_of, process)
    assert rest[-1] == "ProducerFenced"
    stored = [message.value for message in await read_all(client, topic)]
    assert stored == [b"importer %d" % number for number in range(first)] + values


async def test_killed_producer_process_resumes_by_its_name(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """kill -9, repeatedly: it continues at its last id. Messages that it sends again return their original position."""
    topic = "killed-producer"
    said: list[str] = []
    for _ in range(2):
        with publishing_process(cluster, topic) as process:
            said += await lines_of(process, 40)
            await kill(process, once=just_seen)
            said += rest_of(process)
    acked = [int(line.split()[0]) for line in said]
    producer = await client.create_producer(topic, producer_name="importer", on_unverified="accept")
    last = producer.last_sequence_id
    assert last >= max(acked)
    stored = await read_all(client, topic)
    assert [message.sequence_id for message in stored] == list(range(last + 1))
    assert set(acked) <= set(range(last + 1))
    assert {line.split()[1] for line in said} == {"0"}
    again = await producer.send(stored[-1].value, sequence_id=last)
    assert (again.duplicate, again.verified, again.message_id) == (True, True, stored[-1].message_id)
    oldest = await producer.send(stored[0].value, sequence_id=0)
    assert oldest.duplicate
    assert oldest.message_id in {None, stored[0].message_id}
    assert oldest.verified is (oldest.message_id is not None)
    assert len(await read_all(client, topic)) == len(stored)


async def test_fenced_instance_stores_nothing_more(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """In the SDK and on the wire, also after the next takeover: only the latest generation writes."""
    topic = "fenced"
    old = await client.create_producer(topic, producer_name="importer")
    await old.send(b"old", sequence_id=0)
    async with await oncelog.connect(cluster.url) as elsewhere:
        new = await elsewhere.create_producer(topic, producer_name="importer")
        assert new.last_sequence_id == 0
        with pytest.raises(ProducerFenced):
            await old.send(b"zombie", sequence_id=1)
        with pytest.raises(ProducerFenced):
            await old.send_many([b"zombie"], sequence_ids=[2])
        assert isinstance(old.failure, ProducerFenced)
        await new.send(b"new", sequence_id=1)
        stats = await cluster.stats(topic)
        await cluster.change("PUT", f"{rest_path(topic)}/unload")
        await cluster.served_by_another(topic, stats["owner_epoch"])
        await new.send(b"new", sequence_id=2)
        internal = await cluster.stats(topic, "internalStats")
        (producer,) = internal["producers"]
        zombie = ProducerInstance(ProducerId(producer["producer_id"]), Generation(producer["generation"] - 1))
        async with PublishWire.to(internal["owner_address"]) as wire:
            for resume, present in ((zombie, None), (None, zombie)):
                refused = await wire.open(full(topic), internal["topic_id"], "importer", resume=resume, present=present)
                assert isinstance(refused, ProducerFenced)
            granted = await wire.granted(full(topic), internal["topic_id"], "somebody-else")
            await wire.send(granted.session, 1, batch_of(zombie, 3, [b"zombie"]))
            assert isinstance(await wire.fate(granted.session, 1), OncelogError)
    assert [message.value for message in await read_all(client, topic)] == [b"old", b"new", b"new"]


@pytest.mark.hazard("forgotten-producer")
async def test_unknown_producer_ids_are_never_accepted(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """An unknown id must be opened by name. An id that differs from the name's is expired. A generation that was
    never granted is wrong (hazard forgotten-producer)."""
    topic = "unknown"
    producer = await client.create_producer(topic, producer_name="importer")
    await producer.send(b"one", sequence_id=0)
    internal = await cluster.stats(topic, "internalStats")
    (known,) = internal["producers"]
    stranger = ProducerInstance(ProducerId(known["producer_id"] + 1000), Generation(1))
    future = ProducerInstance(ProducerId(known["producer_id"]), Generation(known["generation"] + 1))
    async with PublishWire.to(internal["owner_address"]) as wire:

        async def said(resume: ProducerInstance | None = None, present: ProducerInstance | None = None) -> type:
            topic_id = internal["topic_id"]
            return type(await wire.open(full(topic), topic_id, "importer", resume=resume, present=present))

        assert await said(resume=stranger) is UnknownProducer
        assert await said(present=stranger) is ProducerExpired
        assert await said(resume=future) is InvalidArgument
    assert not (await producer.send(b"two", sequence_id=1)).duplicate


@pytest.mark.hazard("id-between-stored-ids")
async def test_skipped_ids_are_not_reported_as_duplicates(cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """{2, 3, 5} are stored, then 4 is sent: an error for 4 alone, before and after a takeover that replays it
    (hazards id-between-stored-ids, endless-resend)."""
    topic = "holes"
    producer = await client.create_producer(topic, producer_name="importer")
    result = await producer.send_many([b"2", b"3", b"5"], sequence_ids=[2, 3, 5])
    for last in (6, 7):
        with pytest.raises(StaleSequence):
            await producer.send(b"4", sequence_id=4)
        with pytest.raises(StaleSequence) as mixed:
            await producer.send_many([b"3", b"4", b"%d" % last], sequence_ids=[3, 4, last])
        fates = mixed.value.result
        assert (fates.failed_ranges, fates.duplicate_ranges) == ([range(1, 2)], [range(1)])
        again = await producer.send(b"3", sequence_id=3)
        assert (again.duplicate, again.message_id) == (True, result.message_ids[1])
        straddling = await producer.send_many([b"5", b"%d" % last], sequence_ids=[last - 1, last])
        assert straddling.duplicates == 2
        epoch = (await cluster.stats(topic))["owner_epoch"]
        await cluster.kill(await cluster.owner_of(topic), once=idle)
        await cluster.served_by_another(topic, epoch)
        await cluster.healed()
    stored = [message.sequence_id for message in await read_all(client, topic)]
    assert stored == [2, 3, 5, 6, 7]
    async with PublishWire.to((await cluster.stats(topic))["owner_address"]) as wire:
        granted = await wire.granted(full(topic), (await cluster.stats(topic))["topic_id"], "importer")
        batch = batch_of(instance_of(granted), 7, [b"7", b"9"], last=9, deltas=encode_deltas([7, 9]))
        await wire.send(granted.session, 1, batch)
        known, new = await wire.stored(granted.session, 1)
        assert (known.kind, new.kind, new.count) == (ResultKind.DUPLICATE, ResultKind.STORED, 1)
    await until(lambda: producer.failure is not None, DEADLINE_S)
    assert [message.sequence_id for message in await read_all(client, topic)] == [2, 3, 5, 6, 7, 9]
