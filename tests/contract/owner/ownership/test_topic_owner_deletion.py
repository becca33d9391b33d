"""An owner whose topic is deleted ends its producers and readers and serves nothing of the topic any more."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import LogHole, NotOwner, TopicNotFound
from oncelog.core.names import parse_topic
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, PublishClient, batch_of, owner_world

pytestmark = pytest.mark.asyncio


async def test_deletion_ends_producers_and_readers_of_the_topic(tmp_path: Path) -> None:
    """With an error that is not retriable; later clients are told to look the name up."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        reading = channel.stream(READ)
        start = ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST, runner.owner_epoch)
        await reading.write(ReadControl(start, 1 << 20))
        frames = aiter(reading)
        while not (await anext(frames)).at_end:
            pass
        await DeletionStore(world.session).begin(parse_topic("flights"))
        world.topics.assign(runner.topic_id)
        [ended] = (await client.receive()).ended
        assert isinstance(ended.error, TopicNotFound)
        assert "public/default/flights was deleted" in ended.error.message
        told = (await anext(frames)).error
        assert isinstance(told, TopicNotFound)
        assert world.topics.find(runner.topic_id) is None
        request = pb.LastMessageRequest(topic=runner.name, topic_id=runner.topic_id)
        with pytest.raises(NotOwner):
            await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)


async def test_assignment_after_the_deletion_is_ignored(tmp_path: Path) -> None:
    """It was sent when the topic was placed; waiting producers get TopicNotFound."""
    async with owner_world(tmp_path) as (world, _):
        topic_id = await world.new_topic("flights")
        await DeletionStore(world.session).begin(parse_topic("flights"))
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        waiting = asyncio.ensure_future(runner.progress.until_serving())
        await until(lambda: world.topics.find(topic_id) is None, DEADLINE_S)
        with pytest.raises(TopicNotFound):
            await waiting


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_deletion_in_a_former_era_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The ZooKeeper of the former era was told of a deletion after the records had been restored into another one.
    The error would be final for producers of a topic that lives."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        await world.node.runner.raise_era(world.node.incarnation, Era(2, "a" * 32), committed=False)
        await DeletionStore(world.session).begin(parse_topic("flights"))
        world.topics.assign(runner.topic_id)
        await until(lambda: "has no record" in caplog.text, DEADLINE_S)
        assert world.topics.find(runner.topic_id) is runner
        assert not runner.progress.ended
        hole = LogHole("entry 3 is missing")
        assert await runner.why(hole) is hole
