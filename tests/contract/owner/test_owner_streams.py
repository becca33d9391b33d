"""An owner's publish and read streams with clients that break the protocol, disconnect or come too late."""

from typing import Any

import grpc
import pytest

from oncelog.core.errors import InvalidName
from oncelog.core.ids import SessionNumber
from oncelog.core.topic_events.events import SessionClosed
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import OPENS_MAX, PUBLISH, OpenRequest, PublishFrame
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.topic_owner.streams.publish_service import FRAME_ITEMS_MAX
from tests.cluster.until import until
from tests.contract.owner.owner_serving import TOPIC, TOPIC_ID, owner_serving

SESSION = SessionNumber(7)
OPENING = OpenRequest(1, TOPIC, TOPIC_ID, "importer")
EARLIEST = ReadControl(ReaderStart(TOPIC, TOPIC_ID, StartEdge.EARLIEST), 1 << 20)
NO_MESSAGE = b"\xff\xff\xff\xff"


def raw_stream(channel: Channel, path: str) -> Any:
    """A stream of bytes, for what no codec would send."""
    return grpc.aio.insecure_channel(channel.address).stream_stream(path)()


async def end_of(stream: Any) -> grpc.StatusCode:
    """Read to the end; the code that it ends with."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.asyncio
async def test_grant_for_a_broken_stream_leaves_no_session() -> None:
    """The session would never close: the name would stay busy for each producer that refuses to fence."""
    async with owner_serving() as (topic, publish, channel):
        stream = raw_stream(channel, PUBLISH.path)
        await stream.write(PUBLISH.encode_request(PublishFrame(opens=[OPENING])))
        opening, sink = await topic.openings.get()
        await stream.write(NO_MESSAGE)
        assert await end_of(stream) is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: not publish.streams, 30)
        assert topic.abandoned == [opening.call]
        topic.grant(opening, sink, session=SESSION)
        assert topic.posted == [SessionClosed(SESSION, keeps_name=True)]
        assert not topic.sinks


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["x" * 1_000, "x" * 256, "a\nb"])
async def test_owner_refuses_invalid_producer_names(name: str) -> None:
    """The SDK checks it, but any client can send any frame: a name that is too long for a grant once
    ended the owner with all its topics, one owner after the other as the client tried again."""
    async with owner_serving() as (topic, _, channel):
        stream = channel.stream(PUBLISH)
        await stream.write(PublishFrame(opens=[OPENING._replace(producer_name=name)]))
        answers = await anext(aiter(stream))
        assert [type(denied.error) for denied in answers.denied] == [InvalidName]
        assert topic.openings.empty()


@pytest.mark.asyncio
async def test_answers_after_the_clients_half_close_are_sent() -> None:
    """Also answers that become ready while a frame is being sent."""
    async with owner_serving() as (topic, _, channel):
        stream = channel.stream(PUBLISH)
        await stream.write(PublishFrame(opens=[OPENING, OPENING._replace(open_id=2)]))
        for number in (1, 2):
            opening, sink = await topic.openings.get()
            topic.grant(opening, sink, session=SessionNumber(number))
        await stream.finish()
        granted = [grant.open_id async for answers in stream for grant in answers.granted]
        assert granted == [1, 2]


@pytest.mark.asyncio
async def test_reader_that_breaks_the_protocol_gets_an_error() -> None:
    """Its stream ended as if everything had been read, and the reason was lost with its task."""
    async with owner_serving() as (_, _, channel):
        stream = raw_stream(channel, READ.path)
        await stream.write(READ.encode_request(EARLIEST))
        await stream.read()
        await stream.write(NO_MESSAGE)
        assert await end_of(stream) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.asyncio
async def test_read_stream_without_a_start_ends_without_an_error() -> None:
    """A client may disconnect before its first message."""
    async with owner_serving() as (_, _, channel):
        stream = channel.stream(READ)
        await stream.finish()
        assert [frame async for frame in stream] == []


@pytest.mark.asyncio
async def test_answers_are_split_into_bounded_frames() -> None:
    """One frame of all answers would exceed the limit and end the stream with all its sessions."""
    wishes = [OpenRequest(number, TOPIC, TOPIC_ID, "a\nb") for number in range(FRAME_ITEMS_MAX + 100)]
    async with owner_serving() as (_, _, channel):
        stream = channel.stream(PUBLISH)
        for start in range(0, len(wishes), OPENS_MAX):
            await stream.write(PublishFrame(opens=wishes[start : start + OPENS_MAX]))
        denied: list[int] = []
        async for answers in stream:
            assert len(answers.denied) <= FRAME_ITEMS_MAX
            denied += [each.open_id for each in answers.denied]
            if len(denied) >= len(wishes):
                break
        assert denied == list(range(len(wishes)))
