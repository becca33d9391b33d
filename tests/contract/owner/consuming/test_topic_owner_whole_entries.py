"""Consumers of whole entries at a real owner, as gateways have them."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AnswerSubscribe,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerWanted,
    DeliverMessages,
    FlowReported,
    Subscribed,
)
from oncelog.core.errors import ConsumerBusy, InvalidArgument
from oncelog.rpc.codecs.consumer_codec import OpenConsumer
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.owner_world import owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio


def opening(kind: SubscriptionType) -> ConsumerOpening:
    return ConsumerOpening(1, "billing", kind, "c", bytes(16), first_index=0, whole_entries=True)


@pytest.mark.hazard("entry-above-the-permits")
@pytest.mark.parametrize("kind", SubscriptionType)
async def test_entry_goes_out_whole_while_any_credit_is_left(tmp_path: Path, kind: SubscriptionType) -> None:
    """Then nothing before the credit exceeds what was sent. The answer says that the owner does so."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 4, 2)
        client = ConsumeClient(channel, runner)
        attached = await client.open(opening(kind))
        assert isinstance(attached, Subscribed)
        assert attached.whole_entries
        await client.send(FlowReported(attached.consumer, 0, 1))
        assert await client.received(3) == [0, 1, 2]
        await client.send(FlowReported(attached.consumer, 3, 0))
        await client.ack(attached, 0, 0)
        assert not client._reports
        await client.send(FlowReported(attached.consumer, 3, 1))
        frame = await client.report(DeliverMessages)
        assert [each.ranges for each in frame.entries] == [((3, 6),)]


@pytest.mark.hazard("half-open-consumer")
async def test_gateway_is_asked_for_its_client(tmp_path: Path) -> None:
    """On the stream of the consumer that has the exclusive subscription; its answer refuses the other one."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        holder, other = ConsumeClient(channel, runner), ConsumeClient(channel, runner)
        attached = await holder.open(opening(SubscriptionType.EXCLUSIVE))
        assert isinstance(attached, Subscribed)
        request = ConsumerOpening(1, "billing", SubscriptionType.EXCLUSIVE, "d", b"d" * 16)
        await other.send(OpenConsumer(runner.name, runner.topic_id, request))
        assert (await holder.report(ConsumerWanted)).consumer == attached.consumer
        await holder.send(ConsumerHeld(attached.consumer))
        assert isinstance((await other.report(AnswerSubscribe)).result, ConsumerBusy)


async def test_consumer_of_whole_entries_needs_a_level(tmp_path: Path) -> None:
    """Owners of older versions would cut its entries."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        world.level = 8
        client = ConsumeClient(channel, runner)
        refused = await client.open(opening(SubscriptionType.SHARED))
        assert isinstance(refused, InvalidArgument)
        assert "need level 9 of the cluster, and it has level 8" in refused.message
        assert isinstance(await client.ask(SubscriptionType.SHARED), Subscribed)
