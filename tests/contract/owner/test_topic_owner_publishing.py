"""Publish streams on a whole owner: what is refused, what ends a session, and the limit of unanswered bytes."""

import asyncio
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from oncelog.core.errors import (
    InvalidArgument,
    InvalidBatch,
    MessageTooLarge,
    NotOwner,
    OncelogError,
)
from oncelog.core.formats.batch import BatchHeader
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.compression import Compression, compress_payload
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import ProducerId, SessionNumber, TopicId
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES, OpenGranted, OpenRequest, PublishFrame, ReceivedPublish
from oncelog.topic_owner.streams.publish_service import BATCH_OVERHEAD_BYTES
from oncelog.wire.owner_pb2 import TopicStatesRequest
from tests.cluster.until import until
from tests.contract.owner.owner_world import (
    DEADLINE_S,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
    until_streams,
)

TOPIC = "public/default/flights"
MESSAGE_BYTES_MAX = 10_000
SMALL = OwnerLimits(message_bytes_max=MESSAGE_BYTES_MAX)
ROOM = MESSAGE_BYTES_MAX + BATCH_OVERHEAD_BYTES


def sessions_of(world: OwnerWorld) -> int:
    return sum(len(r.core.serving.sessions.open_sessions) for r in world.topics if r.core.serving is not None)


@pytest.mark.asyncio
async def test_published_batch_is_answered_with_its_position(tmp_path: Path) -> None:
    """Sent again on the same session, it is a duplicate at the same position."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        assert (granted.final, granted.last_sequence_id, granted.owner_epoch) == (True, -1, 1)
        batches = [batch_of(granted, range(3)), batch_of(granted, range(3, 5))]
        first = await client.stored(granted, *batches)
        again = await client.stored(granted, *batches)
        assert [(part.kind, part.count) for [part] in first] == [(ResultKind.STORED, 3), (ResultKind.STORED, 2)]
        assert [(part.kind, part.count) for [part] in again] == [(ResultKind.DUPLICATE, 3), (ResultKind.DUPLICATE, 2)]
        assert [part.position for [part] in first] == [part.position for [part] in again]


def unpacks_beyond(granted: OpenGranted) -> bytes:
    return batch_of(granted, [1], payload=b"zipped", raw_bytes=ROOM + 1)


def too_long(granted: OpenGranted) -> bytes:
    return batch_of(granted, [1], payload=bytes(ROOM + 1))


def counts_beyond(granted: OpenGranted) -> bytes:
    return batch_of(granted, range(1, 1_000_000), payload=bytes(4 * 900_000 // 100))


def lies(granted: OpenGranted) -> bytes:
    """Small, of a size that could hold its count: only decompressing it shows that no reader can."""
    return batch_of(granted, range(1, 10_001), payload=b"no zlib", raw_bytes=50_000)


def damaged(granted: OpenGranted) -> bytes:
    return batch_of(granted, [1])[:-1] + b"\xff"


def of_another_producer(granted: OpenGranted) -> bytes:
    return batch_of(granted, [1], producer_id=ProducerId(granted.producer_id + 1))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (too_long, MessageTooLarge),
        (unpacks_beyond, MessageTooLarge),
        (counts_beyond, InvalidBatch),
        (lies, InvalidBatch),
        (damaged, InvalidBatch),
        (of_another_producer, InvalidArgument),
    ],
)
async def test_invalid_batch_ends_only_its_session(tmp_path: Path, make: object, error: type[OncelogError]) -> None:
    """Earlier batches are stored, later ones are not; another session on the stream continues."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        wrong, right = await client.open(runner, "wrong"), await client.open(runner, "right")
        await client.stored(wrong, batch_of(wrong, [0]))
        assert callable(make)
        await client.send(wrong.session, make(wrong), batch_of(wrong, [2]))
        answered: list[object] = []
        while True:
            frame = await client.receive()
            answered += [type(result) for _, result in frame.answers.get(wrong.session, [])]
            if frame.ended:
                break
        assert answered == [error]
        assert [(ended.session, type(ended.error)) for ended in frame.ended] == [(wrong.session, error)]
        assert world.metrics.counts.events[f"batch_refused_{error('').code}"] == 1
        await client.send(wrong.session, batch_of(wrong, [1]))
        [[part]] = await client.stored(right, batch_of(right, [0]))
        assert (part.kind, sessions_of(world)) == (ResultKind.STORED, 1)
        again = await client.open(runner, "wrong")
        assert again.last_sequence_id == 0


@pytest.mark.asyncio
async def test_batches_of_an_unknown_session_are_ignored(tmp_path: Path) -> None:
    """A client still sends before it learns that its session ended; the rest of the frame is handled."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        data = batch_of(granted, [0])
        unknown = SessionNumber(granted.session + 1)
        await client.stream.write(
            PublishFrame([unknown, granted.session, unknown], [1, 2, 3], [data] * 3, closes=[unknown])
        )
        frame = await client.receive()
        assert {number: [request for request, _ in each] for number, each in frame.answers.items()} == {
            granted.session: [2]
        }
        assert frame.ended == []


@pytest.mark.asyncio
async def test_closed_session_is_confirmed(tmp_path: Path) -> None:
    """Its name is free at once, also for a producer that refuses to fence."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        await client.stored(granted, batch_of(granted, [0]))
        await client.stream.write(PublishFrame(closes=[granted.session]))
        [ended] = (await client.receive()).ended
        assert (ended.session, ended.error, ended.owner_epoch) == (granted.session, None, 1)
        assert sessions_of(world) == 0


@pytest.mark.asyncio
async def test_opening_of_a_topic_of_another_owner_is_denied(tmp_path: Path) -> None:
    """Its client looks the topic up again; the stream continues."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        await client.stream.write(PublishFrame(opens=[OpenRequest(9, TOPIC, TopicId("ab" * 16), "importer")]))
        [denied] = (await client.receive()).denied
        assert (denied.open_id, type(denied.error), denied.owner_epoch) == (9, NotOwner, 0)
        assert await client.open(await world.serve(TOPIC), "importer")


@pytest.mark.asyncio
async def test_opening_during_a_takeover_is_answered_after_it(tmp_path: Path) -> None:
    """The lookup was faster than the takeover."""
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        topic_id = await world.new_topic(TOPIC)
        world.session.faults.suspend()
        world.topics.assign(topic_id)
        await client.stream.write(PublishFrame(opens=[OpenRequest(1, TOPIC, topic_id, "importer")]))
        await until_streams(world, 1)
        world.session.faults.resume()
        [granted] = (await client.receive()).granted
        assert granted.topic_id == topic_id


@pytest.mark.asyncio
async def test_broken_stream_with_batches_in_flight_leaves_no_session(tmp_path: Path) -> None:
    """The batches are stored, and are duplicates when a client sends them again."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        with world.node.hold():
            syncs = world.node.held.sync_count
            await client.send(granted.session, batch_of(granted, range(3)))
            await until(lambda: world.node.held.sync_count > syncs, DEADLINE_S, waiting_for="the entry at the node")
            client.stream.cancel()
            await until_streams(world, 0)
            assert (sessions_of(world), runner.sinks) == (0, {})
        again = PublishClient(channel)
        granted = await again.open(runner, "importer")
        assert granted.last_sequence_id == 2
        [[part]] = await again.stored(granted, batch_of(granted, range(3)))
        assert (part.kind, world.metrics.counts.messages) == (ResultKind.DUPLICATE, {"duplicate": 3})


@pytest.mark.asyncio
async def test_stream_with_too_many_unanswered_bytes_is_not_read(tmp_path: Path) -> None:
    """While storage nodes are slow, its bytes wait at the client; afterwards all batches are stored in order."""
    limits = OwnerLimits(unanswered_bytes_max=5_000)
    async with owner_world(tmp_path, limits) as (world, channel):
        client = PublishClient(channel)
        granted = await client.open(await world.serve(TOPIC), "importer")
        batches = [batch_of(granted, [number], payload=encode_values([bytes(2_000)])) for number in range(12)]
        counts = world.metrics.counts
        with world.node.hold():
            for data in batches:
                await client.send(granted.session, data)
            await until(lambda: counts.frames_received == 3, DEADLINE_S)
            # Answered on the same connection, behind all that was sent: what is to be read by then was read.
            await channel.call(TOPIC_STATES, TopicStatesRequest(), timeout_ms=int(DEADLINE_S * 1000))
            assert counts.frames_received == 3
            assert counts.bytes_received == sum(map(len, batches[:3]))
        outcomes: list[tuple[int, object]] = []
        while len(outcomes) < 12:
            outcomes += (await client.receive()).answers[granted.session]
        assert [request for request, _ in outcomes] == list(range(1, 13))
        assert counts.messages == {"stored": 12}


@pytest.mark.asyncio
async def test_end_of_a_session_releases_its_bytes(tmp_path: Path) -> None:
    """Otherwise a stream with a failed ledger would never be read again."""
    limits = OwnerLimits(unanswered_bytes_max=1_000)
    async with owner_world(tmp_path, limits) as (world, channel):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        with world.node.hold():
            await client.send(granted.session, batch_of(granted, [0], payload=encode_values([bytes(2_000)])))
            await until(lambda: world.metrics.counts.frames_received, DEADLINE_S)
            await client.stream.write(PublishFrame(closes=[granted.session]))
            await world.place(runner.topic_id, world.node.incarnation)
            world.topics.look_again()
            [ended] = (await client.receive()).ended
            assert isinstance(ended.error, NotOwner)
        await client.stream.write(PublishFrame(opens=[OpenRequest(5, TOPIC, runner.topic_id, "importer")]))
        [denied] = (await client.receive()).denied
        assert denied.open_id == 5


@pytest.mark.asyncio
async def test_decompression_of_a_large_frame_yields_to_other_tasks(tmp_path: Path) -> None:
    """A frame of some KiB may decompress to gigabytes: another task must run long before its end."""
    async with owner_world(tmp_path) as (world, channel):
        granted = await PublishClient(channel).open(await world.serve(TOPIC), "importer")
        raw = encode_values([bytes(900_000)])
        data = memoryview(batch_of(granted, [1], payload=zlib.compress(raw), raw_bytes=len(raw)))
        count = 20
        frame = ReceivedPublish([granted.session] * count, list(range(count)), [data] * count, [], [])
        turns = 0
        ended = False

        def other() -> None:
            nonlocal turns
            turns += 1
            if not ended:
                asyncio.get_running_loop().call_soon(other)

        other()
        checked = await world.publish.checks.check(frame, {granted.session: SimpleNamespace(producer_name="importer")})
        ended = True
        assert [isinstance(each, BatchHeader) for each in checked] == [True] * count
        assert turns >= count // 2


def packed_batch(granted: OpenGranted, sequence_id: int, codec: Compression) -> bytes:
    raw = encode_values([b"x" * 1000])
    return batch_of(
        granted, [sequence_id], payload=bytes(compress_payload(raw, codec)), raw_bytes=len(raw), compression=codec
    )
