"""Administration of deduplication on a whole owner: what it shows, and snapshots on request."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner
from oncelog.core.ids import SequenceId
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.deduplication_codec import DESCRIBE_DEDUPLICATION, TAKE_SNAPSHOT, VERIFY_FOLD
from oncelog.runtime.observing.events import EventKind
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import deduplication_pb2 as pb
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.owner_world import (
    DEADLINE_S,
    ME,
    PATIENT,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
)

pytestmark = pytest.mark.asyncio
TOPIC = "public/default/flights"
TIMEOUT_MS = 30_000
FAST = 1 << 30
#: Some ledgers, and snapshots with deltas.
SMALL = OwnerLimits(replace(PATIENT, ledger_entries_max=8, snapshot=SnapshotSettings(entries_max=5, gap_ms=0)))


async def described(channel: Channel, runner: TopicRunner) -> dict[str, Any]:
    request = pb.DeduplicationTopic(topic=runner.name, topic_id=runner.topic_id)
    answer = await channel.call(DESCRIBE_DEDUPLICATION, request, timeout_ms=TIMEOUT_MS)
    state: dict[str, Any] = json.loads(answer.state_json)
    return state


async def snapshot(channel: Channel, runner: TopicRunner) -> Any:
    request = pb.DeduplicationTopic(topic=runner.name, topic_id=runner.topic_id)
    return json.loads((await channel.call(TAKE_SNAPSHOT, request, timeout_ms=TIMEOUT_MS)).state_json)


async def verify(channel: Channel, runner: TopicRunner, **action: Any) -> dict[str, Any]:
    """Begin, look (without an action) or cancel; the job as it is then."""
    request = pb.VerifyFoldRequest(topic=runner.name, topic_id=runner.topic_id, **action)
    state: dict[str, Any] = json.loads((await channel.call(VERIFY_FOLD, request, timeout_ms=TIMEOUT_MS)).state_json)
    return state


async def verdict(channel: Channel, runner: TopicRunner) -> dict[str, Any]:
    """Of the job that goes on."""
    seen: dict[str, Any] = {}

    async def over() -> bool:
        nonlocal seen
        seen = await verify(channel, runner)
        return seen["state"] not in ("queued", "running")

    await until(over, DEADLINE_S, waiting_for="the verification")
    return seen


async def filled(world: OwnerWorld, channel: Channel, name: str = TOPIC) -> TopicRunner:
    """A topic of 30 messages of three producers, in some ledgers."""
    runner = await world.serve(name)
    client = PublishClient(channel)
    for producer in range(3):
        granted = await client.open(runner, f"importer-{producer}")
        for number in range(10):
            await client.stored(granted, batch_of(granted, [number]))
    return runner


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


async def test_verification_reads_snapshot_and_log_from_the_storage_nodes(tmp_path: Path) -> None:
    """It runs in the background, is asked for its progress, and may be repeated, also by the next owner."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await filled(world, channel)
        assert await verify(channel, runner) is None
        begun = await verify(channel, runner, begin_bytes_per_s=FAST)
        seen = await verdict(channel, runner)
        assert (seen["id"], seen["state"], seen["phase"], seen["error"]) == (begun["id"], "equal", "done", None)
        assert (seen["producers_compared"], seen["producer_count"], seen["differences"]) == (3, 3, [])
        assert seen["snapshot"]["number"] == seen["newest_snapshot_number"] > 1
        assert seen["position"] == (await described(channel, runner))["position"]
        assert (await verify(channel, runner, cancel=pb.CancelVerification()))["state"] == "equal"
        again = await verify(channel, runner, begin_bytes_per_s=FAST)
        assert again["id"] != seen["id"]
        runner = await taken_over_again(world, runner)
        assert await verify(channel, runner) is None
        await verify(channel, runner, begin_bytes_per_s=FAST)
        assert (await verdict(channel, runner))["state"] == "equal"


async def test_planted_damage_in_the_fold_of_an_owner_is_found(tmp_path: Path) -> None:
    """With the producer; and it is counted, for alerts."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await filled(world, channel)
        assert runner.core.serving is not None
        producers = runner.core.serving.log.table.state.producers
        pid = producers.id_of("importer-1")
        assert pid is not None
        producers[pid].persisted = SequenceId(8)
        await verify(channel, runner, begin_bytes_per_s=FAST)
        seen = await verdict(channel, runner)
        assert (seen["state"], seen["differences_count"]) == ("different", 1)
        expected = {"producer": "importer-1", "producer_id": pid, "field": "persisted", "expected": "9", "found": "8"}
        assert seen["differences"] == [expected]
        assert world.metrics.counts.events["fold_differs"] == 1
        (ended,) = noted(world.metrics.events, EventKind.VERIFICATION)
        assert (ended.level, ended.topic, ended.fields["result"]) == ("error", runner.name, "different")
        producers[pid].persisted = SequenceId(9)


async def test_verifications_are_joined_wait_for_each_other_and_can_be_cancelled(tmp_path: Path) -> None:
    """One at a time in a process: each takes the memory of another fold."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner, other = await filled(world, channel), await filled(world, channel, "public/default/trains")
        async with world.parts.verifying:
            begun = await verify(channel, runner, begin_bytes_per_s=FAST)
            joined = await verify(channel, runner, begin_bytes_per_s=1 << 20)
            assert (joined["id"], joined["state"], joined["bytes_per_second"]) == (begun["id"], "queued", FAST)
            assert (await verify(channel, runner, cancel=pb.CancelVerification()))["state"] == "cancelled"
            await verify(channel, other, begin_bytes_per_s=FAST)
        assert (await verdict(channel, other))["state"] == "equal"
        assert (await verify(channel, runner))["state"] == "cancelled"
        await verify(channel, runner, begin_bytes_per_s=FAST)
        assert (await verdict(channel, runner))["state"] == "equal"
        for limit in (1, 1 << 40):
            with pytest.raises(InvalidArgument):
                await verify(channel, runner, begin_bytes_per_s=limit)


async def test_topic_that_moves_ends_its_verification(tmp_path: Path) -> None:
    """And lets the next one of the process begin."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await filled(world, channel)
        await world.parts.verifying.acquire()
        await verify(channel, runner, begin_bytes_per_s=FAST)
        job = runner.verification
        runner = await taken_over_again(world, runner)
        assert job is not None
        await until(lambda: not job.running, DEADLINE_S, waiting_for="the end of the verification")
        world.parts.verifying.release()
        await verify(channel, runner, begin_bytes_per_s=FAST)
        assert (await verdict(channel, runner))["state"] == "equal"


async def test_entries_that_cannot_be_read_are_no_verdict(tmp_path: Path) -> None:
    """It fails, and says which; the topic serves on."""
    no_snapshots = replace(SMALL, topic=replace(SMALL.topic, snapshot=SnapshotSettings()))
    async with owner_world(tmp_path, no_snapshots) as (world, channel):
        runner = await filled(world, channel)
        serving, lost = runner.core.serving, runner.core.ownership.record.ledgers[1].ledger_id
        await world.parts.ledgers.delete_all([lost])
        await verify(channel, runner, begin_bytes_per_s=FAST)
        seen = await verdict(channel, runner)
        assert (seen["state"], seen["attempts"], seen["differences"]) == ("failed", 3, [])
        assert f"ledger {lost}" in seen["error"]
        assert runner.core.serving is serving is not None
