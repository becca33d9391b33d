"""Responses to a client that sends and does not read are bounded: the owner stops reading its stream."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from oncelog.core.access import Caller
from oncelog.core.ids import TopicId
from oncelog.core.topic.serving import TopicSettings
from oncelog.rpc.codecs.owner_codec import OPENS_MAX, OpenRequest, PublishAnswers, ReceivedPublish
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.streams.publish_service import CHECKS_MAX, OUTBOX_ITEMS_MAX
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerLimits, OwnerWorld, owner_world

pytestmark = pytest.mark.asyncio

TOPIC = "public/default/flights"
NOWHERE = TopicId("ab" * 16)
FRAMES = 100


class UnreadStream:
    """A client that has sent FRAMES frames of openings, and reads no answer until `reads` is set."""

    def __init__(self, topic_id: TopicId) -> None:
        self.caller = Caller("stranger", superuser=False)
        self.peer = "ipv4:127.0.0.1:1"
        self.reads = asyncio.Event()
        self.taken = 0
        self.refused = 0
        self._opens = [OpenRequest(number, TOPIC, topic_id, "importer") for number in range(OPENS_MAX)]

    def __aiter__(self) -> "UnreadStream":
        return self

    async def __anext__(self) -> ReceivedPublish:
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()  # as with a frame from a socket: others have their turn first
        if self.taken == FRAMES:
            raise StopAsyncIteration
        self.taken += 1
        return ReceivedPublish([], [], [], self._opens, [])

    async def write(self, answers: PublishAnswers) -> None:
        await self.reads.wait()
        self.refused += len(answers.denied)


def serve(world: OwnerWorld, stream: UnreadStream) -> "asyncio.Future[None]":
    return asyncio.ensure_future(world.publish.publish(cast("ServerStream[ReceivedPublish, PublishAnswers]", stream)))


async def stands_still(stream: UnreadStream) -> None:
    looks: list[int] = []

    def same_for_long() -> bool:
        looks.append(stream.taken)
        return stream.taken > 0 and looks[-20:] == [stream.taken] * 20

    await until(same_for_long, DEADLINE_S, waiting_for="the owner to take no more")


async def test_unread_answers_to_refused_openings_stop_the_stream(tmp_path: Path) -> None:
    """These answers grew an owner from 64 to 757 MB."""
    async with owner_world(tmp_path) as (world, _):
        stream = UnreadStream(NOWHERE)
        serving = serve(world, stream)
        await stands_still(stream)
        # One frame of answers is with gRPC, which does not take it; the outbox is full behind it.
        assert stream.taken <= (OUTBOX_ITEMS_MAX + 4096) // OPENS_MAX + 2
        stream.reads.set()
        await serving
        assert (stream.taken, stream.refused) == (FRAMES, FRAMES * OPENS_MAX)


async def test_openings_in_authorization_stop_the_stream(tmp_path: Path) -> None:
    """Each is a task that waits until the topic serves, and then reads from ZooKeeper."""
    never_serves = OwnerLimits(TopicSettings(write_quorum=2, ack_quorum=2))  # there is one storage node
    async with owner_world(tmp_path, never_serves) as (world, _):
        topic_id = await world.new_topic(TOPIC)
        world.topics.assign(topic_id)
        stream = UnreadStream(topic_id)
        serving = serve(world, stream)
        await stands_still(stream)
        [client] = world.publish.streams
        assert stream.taken == CHECKS_MAX // OPENS_MAX + 1
        assert len(client._checks) == stream.taken * OPENS_MAX
        serving.cancel()
        await asyncio.wait((serving,))
