"""Space on a whole owner: policies from the store, ends of former owners' ledgers, truncation, clocks."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import BacklogQuotaExceeded, InvalidArgument, NotOwner, StoreUnavailable
from oncelog.core.ids import TopicId
from oncelog.core.policies.producer_caps import ProducerCaps
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes
from oncelog.core.policies.retention_rules import CLOCK_SKEW_MS_MAX, BacklogQuota, QuotaAction, RetentionPolicy
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.metadata_store.session import paths
from oncelog.topic_owner.observe import topic_states
from oncelog.topic_owner.shell.store_clock import StoreClock
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.admin_service import AdminService
from oncelog.wire import truncation_pb2
from tests.cluster.until import until
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
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio
TOPIC = "public/default/flights"
#: A ledger holds four entries, and every snapshot is a base.
SMALL = OwnerLimits(
    replace(PATIENT, ledger_entries_max=4, tick_ms=20, snapshot=SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0))
)


def first_index(runner: TopicRunner) -> int:
    return runner.core.ownership.record.ledgers[0].base_index


async def served_again(world: OwnerWorld, topic_id: TopicId) -> TopicRunner:
    """The topic at its next epoch, by a takeover."""
    await world.topics.unload(topic_id)
    await world.place(topic_id, ME)
    world.topics.assign(topic_id)
    runner = world.topics.find(topic_id)
    assert runner is not None
    await runner.progress.until_serving()
    return runner


async def test_retention_deletes_ledgers_with_their_records_also_of_a_former_owner(tmp_path: Path) -> None:
    """As soon as the policy is set; without it nothing is deleted."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for number in range(30):
            await client.stored(granted, batch_of(granted, [number]))
        first = runner.core.ownership.record.ledgers[0].ledger_id
        assert first_index(runner) == 0
        runner = await served_again(world, runner.topic_id)
        policy = RetentionPolicy(size_bytes=1)
        await world.parts.policies.change(runner.topic_id, lambda p: replace(p, retention=policy))
        await until(lambda: first_index(runner) >= 16, DEADLINE_S, waiting_for="the ledgers of the former owner to go")

        async def gone() -> bool:
            return await world.parts.ledgers.read(first) is None

        await until(gone, DEADLINE_S, waiting_for="the first ledger's record to go")
        assert topic_states.stats(runner)["first_index"] == first_index(runner)
        others = TopicPolicies(lifetimes=ProducerLifetimes(), caps=ProducerCaps())
        assert runner.core.policies == replace(others, retention=policy)


@pytest.mark.hazard("missing-record-is-no-deletion")
async def test_record_that_is_missing_for_a_while_only_delays_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It counted as the record of a deleted ledger. The ledger's end was never asked for again, and nothing of the
    topic was deleted until another owner took it over."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for number in range(30):
            await client.stored(granted, batch_of(granted, [number]))
        first = runner.core.ownership.record.ledgers[0].ledger_id
        runner = await served_again(world, runner.topic_id)
        lost = await world.parts.ledgers.read(first)
        assert lost is not None
        await world.parts.ledgers.delete(first, version=lost.version)
        with caplog.at_level(logging.INFO, logger="oncelog.topic_owner"):
            policy = RetentionPolicy(size_bytes=1)
            await world.parts.policies.change(runner.topic_id, lambda p: replace(p, retention=policy))
            await until(lambda: f"the age of ledger {first} is not known yet" in caplog.text, DEADLINE_S)
        assert first_index(runner) == 0
        await world.parts.ledgers.write(lost.value, version=ABSENT_VERSION)
        await until(lambda: first_index(runner) >= 16, DEADLINE_S, waiting_for="the ledgers of the former owner to go")


async def test_truncation_is_answered_when_the_messages_are_gone(tmp_path: Path) -> None:
    """And only by the process that is meant."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, *(batch_of(granted, [number]) for number in range(10)))
        service = AdminService(world.topics, ME, world.rates)
        answer = await service.truncate(truncation_pb2.TruncateRequest(target=ME, topic_id=runner.topic_id))
        assert answer.first_index == first_index(runner) == 10
        counts = world.metrics.counts
        assert counts.trimmed_messages == 10
        assert counts.trimmed_ledgers >= 1
        assert counts.trimmed_bytes > 0
        await client.stored(granted, batch_of(granted, [10]))
        for target, topic_id in (("e" * 32, runner.topic_id), (ME, "f" * 32)):
            with pytest.raises(NotOwner):
                await service.truncate(truncation_pb2.TruncateRequest(target=target, topic_id=topic_id))


@pytest.mark.hazard("trimmed-too-far")
async def test_trim_below_an_index_is_answered_with_the_first_index(tmp_path: Path) -> None:
    """Without an index it is the end; an index behind the end is refused, and so is another owner's request."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, *(batch_of(granted, [number]) for number in range(10)))
        service = AdminService(world.topics, ME, world.rates)

        async def trimmed(**index: int) -> int:
            request = truncation_pb2.TrimRequest(target=ME, topic_id=runner.topic_id, **index)
            return (await service.trim(request)).first_index

        assert await trimmed(before_index=0) == 0
        assert await trimmed(before_index=5) == first_index(runner) <= 5
        with pytest.raises(InvalidArgument, match="before_index is 11, and the topic ends at 10"):
            await trimmed(before_index=11)
        assert await trimmed() == first_index(runner) == 10
        with pytest.raises(NotOwner):
            await service.trim(truncation_pb2.TrimRequest(target="e" * 32, topic_id=runner.topic_id))


async def test_refused_batch_is_answered_with_the_quota(tmp_path: Path) -> None:
    """The client learns it as any refusal; stats show it."""
    async with owner_world(tmp_path, SMALL) as (world, channel):
        runner = await world.serve(TOPIC)
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        serving = runner.core.serving
        assert serving is not None
        quota = BacklogQuota(QuotaAction.REFUSE, bytes_max=1)
        await world.parts.policies.change(runner.topic_id, lambda p: replace(p, backlog_quota=quota))
        await until(lambda: runner.core.policies.quota == quota, DEADLINE_S)
        await client.stored(granted, batch_of(granted, [0]))  # without subscriptions there is no backlog
        serving.space._give_verdict(replace(serving.space.verdict, refuse=True))
        assert topic_states.stats(runner)["publishing"] == "refused"
        await client.send(granted.session, batch_of(granted, [1]))
        [(_, result)] = (await client.receive()).answers[granted.session]
        assert isinstance(result, BacklogQuotaExceeded)


@pytest.mark.hazard("wrong-clock-expires")
async def test_clock_is_compared_with_the_stores_by_a_write(tmp_path: Path) -> None:
    """The comparison counts for a minute. Without the process's own record there is none."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await session.ensure_path("/owners")
    clock = StoreClock(session, f"{paths.OWNERS}/{ME}")
    with pytest.raises(StoreUnavailable):
        await clock.compare()
    await session.create(f"{paths.OWNERS}/{ME}", b"{}", ephemeral=True)
    checked = await clock.compare()
    assert abs(checked.answered_ms - checked.modified_ms) < CLOCK_SKEW_MS_MAX
    assert await clock.compare() is checked
    node = await session.read(f"{paths.OWNERS}/{ME}")
    assert node is not None
    assert (node.data, node.version) == (b"{}", 1)
