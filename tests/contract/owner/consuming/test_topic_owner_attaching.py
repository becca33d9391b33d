"""Requests to attach whose rights are known at different moments."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import AnswerSubscribe, ConsumerOpening, FlowReported, Subscribed
from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.codecs.consumer_codec import OpenConsumer
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, PublishClient, batch_of
from tests.contract.owner.test_topic_owner_access import channel_of, grant, owner
from tests.contract.sdk.fakes.consume_client import WINDOW, ConsumeClient

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("activation-not-durable")
async def test_repeated_request_to_attach_overtakes_the_first_one(tmp_path: Path) -> None:
    """A client asks again after 5 s. The first request still waits for ZooKeeper then, and must not end the consumer
    that the second one has attached."""
    async with owner(tmp_path) as (world, runner, address), channel_of("both", address) as channel:
        await grant(world, {"both": ("produce", "consume")})
        await until(lambda: "both" in (runner.grants or {}), DEADLINE_S)
        publisher = PublishClient(channel)
        granted = await publisher.open(runner, "p")
        await publisher.stored(granted, batch_of(granted, [1]))
        client = ConsumeClient(channel, runner)
        assert isinstance(await client.ask(SubscriptionType.SHARED, name="first"), Subscribed)

        def opening(call: int, *, max_deliveries: int) -> OpenConsumer:
            """Only one with dead letters has rights looked up in ZooKeeper."""
            request = ConsumerOpening(
                call, "billing", SubscriptionType.SHARED, "c", b"one instance...!", max_deliveries=max_deliveries
            )
            return OpenConsumer(runner.name, runner.topic_id, request)

        world.session.faults.suspend()
        await client.send(opening(11, max_deliveries=2), opening(12, max_deliveries=0))
        second = await client.report(AnswerSubscribe)
        assert second.call == 12
        assert isinstance(second.result, Subscribed)
        world.session.faults.resume()
        first = await client.report(AnswerSubscribe)
        assert (first.call, type(first.result)) == (11, ServiceUnavailable)
        await client.send(FlowReported(second.result.consumer, 0, WINDOW))
        assert await client.received(1) == [0]
