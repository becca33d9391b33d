"""Entries of Pulsar's clients at a whole owner: stored as they came, once every process of the cluster knows them."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import ConsumerOpening, EndConsumer, FlowReported, ReadMessages, Subscribed
from oncelog.core.errors import InvalidBatch, OncelogError
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import BatchHeader, payload_of, peek_batch
from oncelog.core.formats.entry import body_of, peek_header
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.ids import ConsumerNumber, Generation, SessionNumber, SubscriptionNumber
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.finding_codec import FIND_MESSAGE
from oncelog.rpc.codecs.owner_codec import OpenGranted, ReceivedPublish
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire.finding_pb2 import FindMessageRequest
from tests.contract.owner.owner_world import OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient
from tests.core.pulsar_entries import Sent, batched, encrypted, numbered, of_one_key, pack_pulsar, plain, summed

TOPIC = "public/default/flights"


def pulsar_batch(granted: OpenGranted, entry: bytes) -> bytes:
    """As a door packs it."""
    entry = summed(entry, crc32c)
    return pack_pulsar(
        entry, open_entry(entry), producer_id=granted.producer_id, generation=Generation(granted.generation),
        checksum=crc32c,
    )  # fmt: skip


async def refused(client: PublishClient, granted: OpenGranted, batch: bytes) -> OncelogError:
    await client.send(granted.session, batch)
    [(_, error)] = (await client.receive()).answers[granted.session]
    assert isinstance(error, OncelogError)
    return error


@pytest.mark.asyncio
async def test_an_entry_is_stored_as_it_came_and_is_a_duplicate_the_second_time(tmp_path: Path) -> None:
    """A batch, one of a key, an encrypted one: the bytes are those of the client."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        entries = [
            batched(numbered([0, 2]), producer="importer", codec=3),
            of_one_key(numbered([3, 5]), producer="importer"),
            encrypted(6, 9, count=4, producer="importer"),
        ]
        batches = [pulsar_batch(granted, entry) for entry in entries]
        first = await client.stored(granted, *batches)
        again = await client.stored(granted, *batches)
        assert [(part.kind, part.count) for [part] in first] == [(ResultKind.STORED, count) for count in (2, 2, 4)]
        assert [(part.kind, part.position, part.content_differs) for [part] in again] == [
            (ResultKind.DUPLICATE, part.position, False) for [part] in first
        ]
        read = await MessageReads(runner.log).read(ReadMessages(SubscriptionNumber(0), 0, bytes_max=1 << 20))
        bodies = [body_of(entry.data) for entry in read.entries]
        assert [bytes(payload_of(peek_batch(body), body)) for body in bodies] == [
            summed(each, crc32c) for each in entries
        ]
        assert [(entry.base_index, entry.count) for entry in read.entries] == [(0, 2), (2, 2), (4, 4)]


@pytest.mark.hazard("format-of-a-later-version")
@pytest.mark.asyncio
async def test_an_entry_is_refused_until_every_process_knows_its_format(tmp_path: Path) -> None:
    """An owner of the former version may take the topic over, and could not read it. The error says what to do; once
    the level is raised, the same owner stores it, without a restart."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        world.level = 8
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        entry = plain(Sent(0, b"value"), producer="importer")
        error = await refused(client, granted, pulsar_batch(granted, entry))
        assert isinstance(error, UnknownFormat)
        for said in ("payload format 5", "need level 9", "has level 8", "oncelog admin cluster finalize"):
            assert said in error.message
        world.level = 9
        granted = await client.open(runner, "importer")
        assert (await client.stored(granted, pulsar_batch(granted, entry)))[0][0].kind is ResultKind.STORED


@pytest.mark.hazard("entry-of-another-producer")
@pytest.mark.asyncio
async def test_an_entry_that_names_another_producer_ends_its_session(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        error = await refused(client, granted, pulsar_batch(granted, plain(Sent(0), producer="bank")))
        assert isinstance(error, InvalidBatch)
        assert error.details["field"] == "producer_name"


@pytest.mark.asyncio
async def test_the_check_of_a_large_entry_lets_other_tasks_run(tmp_path: Path) -> None:
    """Each message is read, and the payload may be sixteen times its size. A small one is checked at once."""
    async with owner_world(tmp_path) as (world, channel):
        granted = await PublishClient(channel).open(await world.serve(TOPIC), "importer")
        entry = batched([Sent(number, b"x" * 100) for number in range(5_000)], producer="importer")
        turns = await turns_during(world, granted, pulsar_batch(granted, entry))
        assert turns > 0
        packed = plain(Sent(0, bytes(500_000)), producer="importer", codec=3)
        assert len(packed) < 10_000
        assert await turns_during(world, granted, pulsar_batch(granted, packed)) > 0, "small, and says that it is large"
        assert await turns_during(world, granted, pulsar_batch(granted, plain(Sent(0), producer="importer"))) == 0


@pytest.mark.asyncio
async def test_a_frame_with_a_large_entry_has_the_results_of_its_batches_in_order(tmp_path: Path) -> None:
    """Good ones, one that names another producer, one of no open session: they are checked together."""
    async with owner_world(tmp_path) as (world, channel):
        granted = await PublishClient(channel).open(await world.serve(TOPIC), "importer")
        large = batched([Sent(number, b"x" * 100) for number in range(5_000)], producer="importer")
        entries = [plain(Sent(0), producer="importer"), large, plain(Sent(0), producer="bank"), large]
        batches = [memoryview(pulsar_batch(granted, entry)) for entry in entries]
        session, unknown = granted.session, SessionNumber(granted.session + 1)
        frame = ReceivedPublish([session, session, session, unknown], [0, 1, 2, 3], batches, [], [])
        own = {session: SimpleNamespace(producer_name="importer")}
        first, second, third, fourth = await world.publish.checks.check(frame, own)
        assert isinstance(first, BatchHeader)
        assert isinstance(second, BatchHeader)
        assert (first.count, second.count) == (1, 5_000)
        assert isinstance(third, InvalidBatch)
        assert fourth is None


async def turns_during(world: OwnerWorld, granted: OpenGranted, batch: bytes) -> int:
    """How often another task ran while one batch was checked."""
    frame = ReceivedPublish([granted.session], [0], [memoryview(batch)], [], [])
    turns = 0
    ended = False

    def other() -> None:
        nonlocal turns
        turns += not ended
        if not ended:
            asyncio.get_running_loop().call_soon(other)

    asyncio.get_running_loop().call_soon(other)
    [checked] = await world.publish.checks.check(frame, {granted.session: SimpleNamespace(producer_name="importer")})
    ended = True
    assert isinstance(checked, BatchHeader)
    return turns


@pytest.mark.asyncio
async def test_a_message_within_a_batch_of_a_key_is_found(tmp_path: Path) -> None:
    """The owner remembers its first and its last id alone: the entry is read whole."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        await client.stored(granted, pulsar_batch(granted, of_one_key(numbered([0, 2, 4]), producer="importer")))
        request = FindMessageRequest(topic=TOPIC, topic_id=runner.topic_id, producer_name="importer", sequence_id=4)
        answer = await channel.call(FIND_MESSAGE, request, timeout_ms=10_000)
        found = json.loads(answer.found_json)
        assert (found["state"], found["index"]) == ("stored", 2), found


@pytest.mark.hazard("format-of-a-later-version")
@pytest.mark.asyncio
async def test_a_reader_of_an_older_version_gets_an_error_in_place_of_the_entry(tmp_path: Path) -> None:
    """It would take the entry for damage. First it gets what it can read; a reader of this version gets all."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await mixed_log(world, channel)
        for version, indexes in ((8, [0, 1]), (0, [0, 1]), (9, [0, 1, 2])):
            stream = channel.stream(READ)
            start = ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST, version=version)
            await stream.write(ReadControl(start, 1 << 20))
            found: list[int] = []
            error: OncelogError | None = None
            async for frame in stream:
                found += [peek_header(entry).base_index for entry in frame.entries]
                error = frame.error
                if error is not None or frame.at_end:
                    break
            assert found == indexes
            assert (error is None) == (version == 9)
            if error is not None:
                assert isinstance(error, UnknownFormat)
                assert "upgrade it to version 9" in error.message
            stream.cancel()


@pytest.mark.hazard("format-of-a-later-version")
@pytest.mark.asyncio
async def test_a_consumer_of_an_older_version_is_ended_and_holds_nothing(tmp_path: Path) -> None:
    """It might acknowledge what it takes for damage. The next consumer of this version gets everything."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await mixed_log(world, channel)
        client = ConsumeClient(channel, runner)
        old = await attached(client, runner, version=8)
        ended = await client.report(EndConsumer)
        assert (ended.consumer, type(ended.error)) == (old, UnknownFormat)
        assert "upgrade it to version 9" in ended.error.message
        await attached(client, runner, version=9)
        assert await client.received(3) == [0, 1, 2]


async def mixed_log(world: OwnerWorld, channel: Channel) -> TopicRunner:
    """Messages 0 and 1 of ours, and one of a client of Pulsar."""
    client = PublishClient(channel)
    runner = await world.serve(TOPIC)
    granted = await client.open(runner, "importer")
    await client.stored(granted, batch_of(granted, [0]), batch_of(granted, [1]))
    await client.stored(granted, pulsar_batch(granted, plain(Sent(2, b"value"), producer="importer")))
    return runner


async def attached(client: ConsumeClient, runner: TopicRunner, *, version: int) -> ConsumerNumber:
    """A consumer of a program of this version, with room for messages."""
    opening = ConsumerOpening(
        version, "billing", SubscriptionType.EXCLUSIVE, f"of-{version}", b"%016d" % version, first_index=0,
        version=version,
    )  # fmt: skip
    result = await client.open(opening)
    assert isinstance(result, Subscribed), result
    await client.send(FlowReported(result.consumer, 0, 100))
    return result.consumer
