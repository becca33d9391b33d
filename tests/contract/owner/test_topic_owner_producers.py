"""Producers of a topic at a real owner, over the wire."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import Conflict, InvalidArgument, NotFound
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.rpc.codecs.producer_codec import DESCRIBE_PRODUCER, LIST_PRODUCERS, REMOVE_PRODUCER
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.producer_service import LISTED_MAX
from oncelog.verify.owner_report import OwnerReport, owner_report
from oncelog.wire import owner_pb2
from oncelog.wire import producers_pb2 as pb
from tests.contract.owner.owner_world import PublishClient, batch_of, owner_world
from tests.contract.owner.test_topic_owner_leases import lease

pytestmark = pytest.mark.asyncio
TIMEOUT_MS = 10_000


async def page(channel: Channel, runner: TopicRunner, **request: Any) -> tuple[list[dict[str, Any]], int]:
    asked = pb.ListProducersRequest(topic=runner.name, topic_id=runner.topic_id, **({"limit": 10} | request))
    answer = await channel.call(LIST_PRODUCERS, asked, timeout_ms=TIMEOUT_MS)
    return [json.loads(each) for each in answer.producers_json], answer.next_after


async def test_producers_are_listed_and_described_with_their_client(tmp_path: Path) -> None:
    """host:port of the connection; a lease has no session, and says when it may expire."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await PublishClient(channel).open(runner, "till")
        leased = await lease(channel, runner)
        rows, following = await page(channel, runner)
        assert ([row["name"] for row in rows], following) == (["till", leased.producer_name], 0)
        till, new = rows
        assert till["connected"] is True
        assert till["connected_from"].startswith("127.0.0.1:")
        assert (new["connected"], new["connected_from"]) == (False, None)
        assert 0 < new["expires_ms"] <= leased.expires_in_ms
        assert till["expires_ms"] is None
        rows, following = await page(channel, runner, limit=1)
        assert ([row["name"] for row in rows], following) == (["till"], till["producer_id"])
        rows, following = await page(channel, runner, limit=1, after=following)
        assert ([row["name"] for row in rows], following) == ([leased.producer_name], 0)
        wanted = pb.DescribeProducerRequest(topic=runner.name, topic_id=runner.topic_id, name="till")
        answer = await channel.call(DESCRIBE_PRODUCER, wanted, timeout_ms=TIMEOUT_MS)
        shown = json.loads(answer.producer_json)
        generations = shown.pop("generations")
        assert shown | {"idle_ms": 0} == till | {"idle_ms": 0}
        assert all(each["from"].startswith("127.0.0.1:") for each in generations)


async def test_proof_gets_the_producers_page_by_page_with_the_position_of_each_page(tmp_path: Path) -> None:
    """By id, with the end of the log in the same answer. Without a place to begin, nothing is said of pages."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = PublishClient(channel)
        for name in ("c", "a", "b"):
            await client.open(runner, name)

        async def asked(**fields: Any) -> OwnerReport:
            request = owner_pb2.TopicStatesRequest(topic_ids=[runner.topic_id], internal=True, **fields)
            [state] = (await channel.call(TOPIC_STATES, request, timeout_ms=TIMEOUT_MS)).states
            return owner_report(state.owner_epoch, json.loads(state.stats_json), json.loads(state.internal_stats_json))

        first = await asked(producers_after=0, producers_max=2)
        assert [one.name for one in first.live.producers.values()] == ["c", "a"]
        assert first.next_after == list(first.live.producers)[-1]
        assert first.live.lists_all
        granted = await client.open(runner, "a")
        await client.stored(granted, batch_of(granted, [1]))
        second = await asked(producers_after=first.next_after, producers_max=2)
        assert ([one.name for one in second.live.producers.values()], second.next_after) == (["b"], None)
        assert second.live.position > first.live.position
        whole, some = await asked(), await asked(producers_max=1)
        assert (len(whole.live.producers), whole.live.lists_all, whole.next_after) == (3, True, None)
        assert (len(some.live.producers), some.live.lists_all, some.next_after) == (1, False, None)


async def test_what_is_not_there_and_what_is_too_much_is_refused(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        for limit in (0, LISTED_MAX + 1):
            with pytest.raises(InvalidArgument, match="limit"):
                await page(channel, runner, limit=limit)
        for wanted in ({"name": "nobody"}, {"producer_id": 7}, {}):
            request = pb.DescribeProducerRequest(topic=runner.name, topic_id=runner.topic_id, **wanted)
            with pytest.raises(NotFound, match="has no producer"):
                await channel.call(DESCRIBE_PRODUCER, request, timeout_ms=TIMEOUT_MS)


async def remove(channel: Channel, runner: TopicRunner, producer_id: int, **request: Any) -> None:
    asked = pb.RemoveProducerRequest(
        topic=runner.name, topic_id=runner.topic_id, producer_id=producer_id, by="root", **request
    )
    await channel.call(REMOVE_PRODUCER, asked, timeout_ms=TIMEOUT_MS)


async def test_connected_producer_is_deleted_by_force_only(tmp_path: Path) -> None:
    """Its session ends with the stream's next frame."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = PublishClient(channel)
        granted = await client.open(runner, "till")
        with pytest.raises(Conflict, match="is connected"):
            await remove(channel, runner, granted.producer_id, delete=True)
        await remove(channel, runner, granted.producer_id, delete=True, force=True)
        (ended,) = (await client.receive()).ended
        assert (ended.session, type(ended.error).__name__) == (granted.session, "ProducerFenced")
        assert await page(channel, runner) == ([], 0)
        with pytest.raises(NotFound):
            await remove(channel, runner, granted.producer_id, delete=True, force=True)
