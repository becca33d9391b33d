"""Leases of producer ids at a real owner, over the wire."""

import asyncio
from pathlib import Path

import pytest

import oncelog
from oncelog.core.errors import (
    InvalidArgument,
    LimitReached,
    OncelogError,
    ProducerExpired,
    ProducerFenced,
    ServiceUnavailable,
)
from oncelog.core.policies.producer_lifetimes import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import CLUSTER
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import LEASE_PRODUCER_ID, OpenRequest, PublishFrame
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import owner_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.owner_world import PublishClient, owner_world

pytestmark = pytest.mark.asyncio
REQUEST = b"r" * 16


async def lease(
    channel: Channel, runner: TopicRunner, producer_id: int = 0, generation: int = 0, *, expire_ms: int = 0,
    request_id: bytes = REQUEST,
) -> pb.LeaseProducerIdAnswer:  # fmt: skip
    request = pb.LeaseProducerIdRequest(
        topic=runner.name, topic_id=runner.topic_id, producer_id=producer_id, generation=generation,
        expire_ms=expire_ms, request_id=request_id,
    )  # fmt: skip
    return await channel.call(LEASE_PRODUCER_ID, request, timeout_ms=10_000)


async def test_lease_of_a_new_id_and_its_next_generation(tmp_path: Path) -> None:
    """Repeated requests get what the first one got; the answer says how long the id lives."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("leased")
        new = await lease(channel, runner)
        assert (new.generation, new.last_sequence_id) == (1, -1)
        assert LEASE_MS <= new.expires_in_ms < LEASE_MS * 9 // 8
        assert (await lease(channel, runner)).producer_id == new.producer_id
        following = await lease(channel, runner, new.producer_id, request_id=b"s" * 16)
        assert (following.producer_id, following.generation) == (new.producer_id, 2)
        with pytest.raises(ProducerFenced):
            await lease(channel, runner, new.producer_id, 1, request_id=b"t" * 16)
        renewed = await lease(channel, runner, new.producer_id, 2, expire_ms=LEASE_MS_MIN)
        assert LEASE_MS_MIN <= renewed.expires_in_ms < LEASE_MS_MIN * 9 // 8
        assert (await lease(channel, runner, new.producer_id, 2)).expires_in_ms == renewed.expires_in_ms
        with pytest.raises(ProducerExpired):
            await lease(channel, runner, 999)


def many(runner: TopicRunner, *, first: int, count: int, producer_id: int = 0) -> pb.LeaseProducerIdRequest:
    """A request for leases with request ids of their own, from `first` on."""
    lead, *further = (
        pb.FurtherLease(producer_id=producer_id, request_id=number.to_bytes(16))
        for number in range(first, first + count)
    )
    return pb.LeaseProducerIdRequest(
        topic=runner.name, topic_id=runner.topic_id, producer_id=lead.producer_id, request_id=lead.request_id,
        further=further,
    )  # fmt: skip


def granting(runner: TopicRunner) -> int:
    """New producers whose grants are in flight."""
    serving = runner.core.serving
    return 0 if serving is None else serving.openings.granting.new_count


async def test_leases_of_one_request_share_a_durable_write(tmp_path: Path) -> None:
    """Ten clients with a hundred leases each waited for a thousand calls. A lease that is refused is refused alone; a
    repeated request gets the same leases; generations of one id ascend in the order of the request."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("leased")
        saved = await lease(channel, runner)  # which also claims a block of ids
        with world.node.hold():
            asking = asyncio.create_task(
                channel.call(LEASE_PRODUCER_ID, many(runner, first=1, count=90), timeout_ms=30_000)
            )
            await until(lambda: granting(runner) == 90, 30, waiting_for="all grants to be handed to the storage node")
            synced = world.node.held.sync_count
        await asking  # on a busy machine some leases are late
        answer = await channel.call(LEASE_PRODUCER_ID, many(runner, first=1, count=90), timeout_ms=30_000)
        assert world.node.held.sync_count - synced < 10, "and not one sync for each"
        pids = [each.lease.producer_id for each in answer.results]
        assert len(set(pids)) == 90
        assert {each.lease.generation for each in answer.results} == {1}
        again = await channel.call(LEASE_PRODUCER_ID, many(runner, first=1, count=90), timeout_ms=30_000)
        assert [each.lease.producer_id for each in again.results] == pids
        mixed = many(runner, first=100, count=4, producer_id=saved.producer_id)
        mixed.further[1].producer_id = 999
        results = (await channel.call(LEASE_PRODUCER_ID, mixed, timeout_ms=30_000)).results
        assert [each.lease.generation for each in results] == [2, 3, 0, 4]
        assert results[2].error.code == ProducerExpired.code


async def test_lease_that_is_not_granted_in_time_is_given_to_the_next_request(tmp_path: Path) -> None:
    """The caller is told to ask again. Its grant becomes durable for nobody, and is no second one when it asks."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("leased")
        await lease(channel, runner)
        with world.node.hold():
            answer = await channel.call(LEASE_PRODUCER_ID, many(runner, first=1, count=2), timeout_ms=30_000)
            assert [each.error.code for each in answer.results] == [ServiceUnavailable.code] * 2
            assert all("ask again" in each.error.message and each.error.retriable for each in answer.results)
        answer = await channel.call(LEASE_PRODUCER_ID, many(runner, first=1, count=2), timeout_ms=30_000)
        assert [each.lease.generation for each in answer.results] == [1, 1]
        assert runner.core.serving is not None
        assert len(runner.core.serving.log.table.state.producers) == 3


async def test_policies_of_producers_hold_at_a_running_owner(tmp_path: Path) -> None:
    """By default assigned names expire after a week. A change is said in the log, and a lease that states no time gets
    that of the policy."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("leased")
        await PublishClient(channel).open(runner, "")

        def logged() -> tuple[int, int]:
            serving = runner.core.serving
            return (0, 0) if serving is None else serving.log.table.state.lifetimes[:2]

        await until(lambda: logged() == (LEASE_MS, 0), 30)
        changed = Policies(chosen_producer_expiry_s=86_400, producer_lease_expiry_s=3_600)
        await world.parts.policies.change(CLUSTER, lambda _: changed)
        await PublishClient(channel).open(runner, "chosen")
        await until(lambda: logged() == (LEASE_MS, 86_400_000), 30)
        assert 3_600_000 <= (await lease(channel, runner)).expires_in_ms < 3_600_000 * 9 // 8


async def test_cap_of_a_namespace_counts_all_its_topics_at_the_owner(tmp_path: Path) -> None:
    """The second topic gets no producer when the first one has as many as the namespace may have. The metric says how
    near a cap is."""
    async with owner_world(tmp_path) as (world, channel):
        first, second = await world.serve("first"), await world.serve("second")
        await world.parts.policies.change(CLUSTER, lambda _: Policies(max_known_producers_per_namespace=4))
        await until(lambda: (caps := second.core.policies.caps) is not None and caps.namespace == 4, 30)
        client = PublishClient(channel)
        for name in "abc":
            await client.open(first, name)
        assert world.topics.producers.share_max() == 0.75
        await client.open(first, "d")
        assert world.topics.producers.share_max() == 1
        await client.stream.write(PublishFrame(opens=[OpenRequest(9, second.name, second.topic_id, "e")]))
        [denied] = (await client.receive()).denied
        assert isinstance(denied.error, LimitReached)
        assert "maxKnownProducersPerNamespace" in denied.error.message


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("expire_ms", {"expire_ms": LEASE_MS_MIN - 1}),
        ("expire_ms", {"expire_ms": LEASE_MS_MAX + 1}),
        ("request_id", {"request_id": b"short"}),
        ("generation", {"generation": 1}),
    ],
)
async def test_bad_request_names_its_field(tmp_path: Path, field: str, values: dict[str, object]) -> None:
    """And leases nothing."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("leased")
        with pytest.raises(InvalidArgument) as refused:
            await lease(channel, runner, **values)  # type: ignore[arg-type]
        assert refused.value.details["field"] == field
        assert runner.core.serving is not None
        assert not len(runner.core.serving.log.table.state.producers)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("producer_id", {"producer_id": 0}),
        ("producer_id", {"producer_id": True}),
        ("generation", {"generation": 3}),
        ("generation", {"producer_id": 3, "generation": 2**32}),
        ("expires", {"expires": 9.9}),
        ("expires", {"expires": "1 h"}),
    ],
)
async def test_bad_argument_is_refused_before_it_is_sent(field: str, fields: dict[str, object]) -> None:
    """By the SDK, which names the argument."""
    with pytest.raises(OncelogError) as refused:
        oncelog.LeaseWanted("orders", **fields)  # type: ignore[arg-type]
    assert refused.value.details["field"] == field
