"""Record batches of Kafka's clients at a whole owner: stored as they came, under the epochs and numbers of clients."""

from pathlib import Path

import pytest
from crc32c import crc32c

from oncelog.core.delivery.events import ReadMessages
from oncelog.core.errors import InvalidBatch, OncelogError, SequenceGap, StaleSequence
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import PayloadFormat, encode_batch, payload_of, peek_batch
from oncelog.core.formats.entry import SequenceMode, body_of, check_reader
from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.formats.opening import GatewayClient
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import Generation, InstanceId, SubscriptionNumber
from oncelog.rpc.codecs.owner_codec import OpenGranted, OpenRequest, PublishFrame
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.contract.owner.owner_world import PublishClient, owner_world
from tests.core.kafka_batches import TIME_MS, framed, numbered, packed, records

TOPIC = "public/default/flights"
pytestmark = pytest.mark.asyncio


async def opened(client: PublishClient, runner: TopicRunner) -> OpenGranted:
    """Of the client with producer id 7."""
    request = OpenRequest(
        1, runner.name, runner.topic_id, "kafka/7", SequenceMode.EPOCHED, instance_id=InstanceId(b"x" * 16),
        client=GatewayClient(1),
    )  # fmt: skip
    await client.stream.write(PublishFrame(opens=[request]))
    while True:
        for granted in (await client.receive()).granted:
            return granted


def sent(count: int, *, epoch: int = 0, sequence: int = 0, codec: int = 0, claims: int | None = None) -> bytes:
    """A record batch of the client; claims: another count than it has records."""
    raw = packed(codec, records(numbered(count)))
    return framed(raw, claims or count, attributes=codec, producer=(7, epoch, sequence), by=crc32c)


def as_packed(granted: OpenGranted, entry: bytes, *, epoch: int = 0, number: int = 0, count: int) -> bytes:
    """As a gateway packs it."""
    first = first_of(epoch) + number
    return encode_batch(
        entry, producer_id=granted.producer_id, generation=Generation(granted.generation), first=first,
        last=first + count - 1, count=count, publish_time_ms=TIME_MS, checksum=crc32c,
        payload_format=PayloadFormat.KAFKA,
    )  # fmt: skip


async def refused(client: PublishClient, granted: OpenGranted, batch: bytes) -> OncelogError:
    await client.send(granted.session, batch)
    [(_, error)] = (await client.receive()).answers[granted.session]
    assert isinstance(error, OncelogError)
    return error


async def test_a_record_batch_is_stored_as_it_came_and_is_a_duplicate_the_second_time(tmp_path: Path) -> None:
    """Also one of a higher epoch, which begins at number 0 again, and a number that has wrapped around."""
    async with owner_world(tmp_path) as (world, channel):
        client, runner = PublishClient(channel), await world.serve(TOPIC)
        granted = await opened(client, runner)
        entries = [sent(2), sent(3, sequence=2, codec=4), sent(1, epoch=4)]
        batches = [
            as_packed(granted, entries[0], count=2), as_packed(granted, entries[1], number=2, count=3),
            as_packed(granted, entries[2], epoch=4, count=1),
        ]  # fmt: skip
        first = await client.stored(granted, *batches)
        again = await client.stored(granted, *batches)
        assert [(part.kind, part.count) for [part] in first] == [(ResultKind.STORED, count) for count in (2, 3, 1)]
        assert [(part.kind, part.position, part.content_differs) for [part] in again] == [
            (ResultKind.DUPLICATE, part.position, False) for [part] in first
        ]
        read = await MessageReads(runner.log).read(ReadMessages(SubscriptionNumber(0), 0, bytes_max=1 << 20))
        bodies = [body_of(entry.data) for entry in read.entries]
        assert [bytes(payload_of(peek_batch(body), body)) for body in bodies] == entries
        assert [(entry.base_index, entry.count) for entry in read.entries] == [(0, 2), (2, 3), (5, 1)]
        assert [part.index for [part] in first] == [0, 2, 5]
        assert [part.index for [part] in again] == [None] * 3
        check_reader(read.entries[0].data, 9)
        with pytest.raises(UnknownFormat, match=r"of a client of Kafka \(payload format 4\).*version 9"):
            check_reader(read.entries[0].data, 8)


async def test_the_index_of_a_batch_with_a_stored_prefix_is_that_of_what_is_new(tmp_path: Path) -> None:
    """Records 0 and 1 are stored, and come again with record 2. Another client's batch is between them."""
    async with owner_world(tmp_path) as (world, channel):
        client, runner = PublishClient(channel), await world.serve(TOPIC)
        granted, other = await opened(client, runner), await client.open(runner, "importer")
        await client.stored(granted, as_packed(granted, sent(2), count=2))
        await client.stored(other, as_packed(other, sent(4), count=4))
        [(known, new)] = await client.stored(granted, as_packed(granted, sent(3), count=3))
        assert (known.kind, known.count, known.index) == (ResultKind.DUPLICATE, 2, None)
        assert (new.kind, new.count, new.index) == (ResultKind.STORED, 1, 6)
        read = await MessageReads(runner.log).read(ReadMessages(SubscriptionNumber(0), 6, bytes_max=1 << 20))
        assert [(entry.base_index, entry.skip_first, entry.count) for entry in read.entries] == [(6, 2, 1)]


@pytest.mark.hazard("copy-of-an-older-epoch")
async def test_gaps_and_late_copies_end_the_session(tmp_path: Path) -> None:
    """The next number of the epoch is named; nothing of the batch is stored. The instance opens another session."""
    async with owner_world(tmp_path) as (world, channel):
        client, runner = PublishClient(channel), await world.serve(TOPIC)
        granted = await opened(client, runner)
        await client.stored(granted, as_packed(granted, sent(2, epoch=1), epoch=1, count=2))
        gap = as_packed(granted, sent(1, epoch=1, sequence=3), epoch=1, number=3, count=1)
        error = await refused(client, granted, gap)
        assert isinstance(error, SequenceGap)
        assert error.details["expected"] == first_of(1) + 2
        granted = await opened(client, runner)
        assert granted.last_sequence_id == first_of(1) + 1
        late = await refused(client, granted, as_packed(granted, sent(1), count=1))
        assert isinstance(late, StaleSequence)


@pytest.mark.hazard("record-batch-that-lies")
async def test_a_batch_that_counts_wrongly_is_not_stored(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        client = PublishClient(channel)
        granted = await opened(client, await world.serve(TOPIC))
        error = await refused(client, granted, as_packed(granted, sent(4, claims=5), count=5))
        assert isinstance(error, InvalidBatch)
        assert error.details["field"] == "records_count"


@pytest.mark.hazard("format-of-a-later-version")
async def test_a_batch_is_refused_until_every_process_knows_its_format(tmp_path: Path) -> None:
    """Under an ordinary name, because clients of gateways need the same level. Control: then it is stored."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        world.level = 8
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        error = await refused(client, granted, as_packed(granted, sent(1), count=1))
        assert isinstance(error, UnknownFormat)
        for said in ("clients of Kafka (payload format 4)", "need level 9", "has level 8", "cluster finalize"):
            assert said in error.message
        world.level = 9
        granted = await client.open(runner, "importer")
        [[part]] = await client.stored(granted, as_packed(granted, sent(1), count=1))
        assert part.kind is ResultKind.STORED
