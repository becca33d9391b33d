"""Administration of deduplication on a whole owner: what it shows, and snapshots on request."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import NotOwner
from oncelog.rpc.channel import Channel
from oncelog.rpc.deduplication_codec import DESCRIBE_DEDUPLICATION, TAKE_SNAPSHOT
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import deduplication_pb2 as pb
from tests.contract.owner.owner_world import ME, OwnerWorld, PublishClient, batch_of, owner_world

pytestmark = pytest.mark.asyncio
TOPIC = "public/default/flights"
TIMEOUT_MS = 30_000


async def described(channel: Channel, runner: TopicRunner) -> dict[str, Any]:
    request = pb.DeduplicationTopic(topic=runner.name, topic_id=runner.topic_id)
    answer = await channel.call(DESCRIBE_DEDUPLICATION, request, timeout_ms=TIMEOUT_MS)
    state: dict[str, Any] = json.loads(answer.state_json)
    return state


async def snapshot(channel: Channel, runner: TopicRunner) -> Any:
    request = pb.DeduplicationTopic(topic=runner.name, topic_id=runner.topic_id)
    return json.loads((await channel.call(TAKE_SNAPSHOT, request, timeout_ms=TIMEOUT_MS)).state_json)


async def taken_over_again(world: OwnerWorld, runner: TopicRunner) -> TopicRunner:
    """By a takeover that finds the topic as a crash leaves it."""
    topic_id = runner.topic_id
    await world.topics.unload(topic_id)
    await world.place(topic_id, ME)
    world.topics.assign(topic_id)
    found = world.topics.find(topic_id)
    assert found is not None
    await found.progress.until_serving()
    return found


async def test_snapshot_on_request_is_what_the_next_owner_begins_with(tmp_path: Path) -> None:
    """It covers what was stored before the request; status says so, also after a takeover."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [0, 1, 2]))
        await client.stored(granted, batch_of(granted, [0, 1, 2]))
        before = await described(channel, runner)
        assert (before["enabled"], before["producer_count"], before["duplicates_refused"]) == (True, 1, 3)
        assert (before["snapshot"], before["replay_entries"]) == (None, 2)
        assert before["replay_bytes"] > 0
        taken = await snapshot(channel, runner)
        after = await described(channel, runner)
        assert after["position"] == taken["position"] == before["position"]
        assert (after["snapshot"]["number"], after["replay_entries"], after["replay_bytes"]) == (1, 0, 0)
        runner = await taken_over_again(world, runner)
        later = await described(channel, runner)
        assert (later["snapshot"]["taken_ms"], later["replay_entries"]) == (taken["taken_ms"], 0)
        assert later["snapshot_writer"]["failures"] == 0
        for topic_id in ("f" * 32, ""):
            request = pb.DeduplicationTopic(topic=TOPIC, topic_id=topic_id)
            with pytest.raises(NotOwner):
                await channel.call(TAKE_SNAPSHOT, request, timeout_ms=TIMEOUT_MS)
