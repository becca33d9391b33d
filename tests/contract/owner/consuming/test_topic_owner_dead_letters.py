"""Dead letters of a real owner: published by a metadata service, and kept as long as that fails."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import ConsumerOpening, FlowReported, NackRequested, Subscribed
from oncelog.core.errors import BacklogQuotaExceeded, OncelogError
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import PUBLISH_DEAD_LETTERS, RESOLVE_DEAD_LETTER_TOPIC
from oncelog.rpc.server import Server
from oncelog.topic_owner.observe.subscription_states import subscriptions_of
from oncelog.wire import metadata_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, owner_world
from tests.contract.sdk.fakes.consume_client import WINDOW, ConsumeClient

pytestmark = pytest.mark.asyncio
DEAD_TOPIC_ID = "d" * 32


class DeadLetterTopic:
    """Stands for the metadata service and the topic behind it."""

    def __init__(self) -> None:
        #: answers of the next requests
        self.errors: list[OncelogError] = []
        #: (message index, sequence)
        self.stored: list[tuple[int, int]] = []

    async def resolve(self, _request: pb.ResolveDeadLetterTopicRequest) -> pb.ResolveDeadLetterTopicAnswer:
        return pb.ResolveDeadLetterTopicAnswer(topic_id=DEAD_TOPIC_ID)

    async def publish(self, request: pb.PublishDeadLettersRequest) -> pb.PublishDeadLettersAnswer:
        if self.errors:
            raise self.errors.pop(0)
        self.stored += [(letter.message_index, letter.sequence) for letter in request.letters]
        return pb.PublishDeadLettersAnswer()

    async def serve(self, world: OwnerWorld) -> Server:
        server = Server()
        server.unary(RESOLVE_DEAD_LETTER_TOPIC, self.resolve)
        server.unary(PUBLISH_DEAD_LETTERS, self.publish)
        port = await server.start()
        world.parts.metadata.addresses = lambda: [f"127.0.0.1:{port}"]
        world.parts.metadata.new_channel = Channel
        return server


@pytest.mark.hazard("dead-letter-number-lost")
async def test_dead_letter_that_is_refused_is_kept_and_published_later(tmp_path: Path) -> None:
    """The dead-letter topic is over its own backlog quota: the message stays unacknowledged and counts as pending. It
    is stored once the topic takes it."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        topic = DeadLetterTopic()
        server = await topic.serve(world)
        try:
            topic.errors = [BacklogQuotaExceeded("the backlog quota of the dead-letter topic is exceeded")] * 1_000
            await stored(channel, runner, 3)
            client = ConsumeClient(channel, runner)
            opening = ConsumerOpening(
                1, "billing", SubscriptionType.SHARED, "c", bytes(16), first_index=0, max_deliveries=1,
                dead_letter_topic="orders-dead",
            )  # fmt: skip
            attached = await client.open(opening)
            assert isinstance(attached, Subscribed)
            await client.send(FlowReported(attached.consumer, 0, WINDOW))
            assert await client.received(3) == [0, 1, 2]
            ranges = (IndexRange(1, 1),)
            await client.send(NackRequested(attached.consumer, 7, attached.seek_epoch, ranges, delay_ms=0))
            serving = runner.core.serving
            assert serving is not None

            def shown() -> tuple[object, object, object]:
                one = subscriptions_of(serving)["billing"]
                return one["msg_backlog"], one["pending_dead_letters"], one["dead_letters_wait_for"]

            await until(lambda: len(topic.errors) < 1_000, DEADLINE_S, waiting_for="a refused dead letter")
            reason = "the backlog quota of the dead-letter topic is exceeded"
            await until(lambda: shown() == (3, 1, reason), DEADLINE_S, waiting_for="the reason in the statistics")
            assert topic.stored == []
            topic.errors.clear()
            await until(lambda: shown() == (2, 0, None), DEADLINE_S, waiting_for="the dead letter to be stored")
            assert topic.stored == [(1, 0)]
        finally:
            await server.stop(grace_ms=0)
