"""Events of a topic owner, as other services ask for them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.policies.retention_rules import BacklogQuota, QuotaAction
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.events_codec import LIST_EVENTS
from oncelog.runtime.observing.events import EventKind
from oncelog.wire import events_pb2 as pb
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import DEADLINE_S, ME, PATIENT, OwnerLimits, PublishClient, owner_world

pytestmark = pytest.mark.asyncio


async def listed(channel: Channel, **request: Any) -> pb.ListEventsAnswer:
    asked = pb.ListEventsRequest(**({"limit": 100} | request))
    return await channel.call(LIST_EVENTS, asked, timeout_ms=10_000)


async def test_fenced_producer_is_an_event_with_both_sides(tmp_path: Path) -> None:
    """Only if it was connected: an instance that ended and came back fences nobody who works."""
    async with owner_world(tmp_path) as (world, channel):
        runner, first = await world.serve("orders"), PublishClient(channel)
        granted = await first.open(runner, "importer")
        assert not noted(world.metrics.events, EventKind.FENCING)
        await PublishClient(channel).open(runner, "importer")
        answer = await listed(channel, kinds=["fencing", "unheard"], within="public/default/orders", node=ME)
        assert (answer.service, answer.name) == ("topic_owner", ME)
        (event,) = answer.events
        assert (event.kind, event.topic, event.count) == ("fencing", runner.name, 1)
        fields = json.loads(event.fields_json)
        assert (fields["producer"], fields["producer_id"]) == ("importer", granted.producer_id)
        assert (fields["former_generation"], fields["generation"]) == (1, 2)
        assert fields["peer"]
        assert fields["former_peer"]


async def test_evicted_messages_are_one_event_for_a_subscription(tmp_path: Path) -> None:
    """With their number, however many steps the eviction takes."""
    async with owner_world(tmp_path, OwnerLimits(replace(PATIENT, tick_ms=20))) as (world, channel):
        runner = await world.serve("orders")
        await Administrator(channel, runner).create("billing")
        quota = BacklogQuota(QuotaAction.EVICT, bytes_max=1)
        await world.parts.policies.change(runner.topic_id, lambda before: replace(before, backlog_quota=quota))
        await stored(channel, runner, 3)

        def evicted() -> int:
            return sum(event.count for event in noted(world.metrics.events, EventKind.EVICTION))

        await until(lambda: evicted() == 3, DEADLINE_S, waiting_for="the backlog to be evicted")
        (event,) = noted(world.metrics.events, EventKind.EVICTION)
        assert (event.topic, event.fields) == (runner.name, {"subscription": "billing", "reason": "backlog_quota"})


async def test_limit_of_a_list_of_events_is_checked(tmp_path: Path) -> None:
    async with owner_world(tmp_path) as (_, channel):
        for limit in (0, 1_001, -1):
            with pytest.raises(InvalidArgument, match=f"limit={limit}"):
                await listed(channel, limit=limit)
