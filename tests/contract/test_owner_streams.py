"""An owner's publish and read streams, where a client breaks the rules, goes away or comes too late."""

import asyncio
from typing import Any

import grpc
import pytest

from oncelog.core.errors import InvalidName
from oncelog.core.ids import EntryId, LedgerId, Position, SessionNumber
from oncelog.core.topic.events import SessionClosed
from oncelog.rpc.channel import Channel
from oncelog.rpc.owner_codec import OPENS_MAX, PUBLISH, OpenRequest, PublishFrame
from oncelog.rpc.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.topic_owner.publish_service import FRAME_ITEMS_MAX
from tests.cluster.until import until
from tests.contract.owner_serving import TOPIC, TOPIC_ID, owner_serving

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
async def test_a_grant_for_a_stream_that_broke_leaves_no_session_behind() -> None:
    """Nobody would ever close it: its name would be busy to every newcomer that refuses to fence, for ever."""
    async with owner_serving() as (topic, publish, channel):
        stream = raw_stream(channel, PUBLISH.path)
        await stream.write(PUBLISH.encode_request(PublishFrame(opens=[OPENING])))
        opening, sink = await topic.openings.get()
        await stream.write(NO_MESSAGE)
        assert await end_of(stream) is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: not publish.streams, 10)
        assert topic.abandoned == [opening.call]
        topic.grant(opening, sink, session=SESSION)
        assert topic.posted == [SessionClosed(SESSION)]
        assert not topic.sinks


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["x" * 1_000, "x" * 256, "a\nb"])
async def test_a_name_that_no_producer_may_have_is_refused_by_the_owner_too(name: str) -> None:
    """The SDK checks it, but any client can send any frame: a name that is too long for a grant once
    ended the owner with all its topics, one owner after the other as the client tried again."""
    async with owner_serving() as (topic, _, channel):
        stream = channel.stream(PUBLISH)
        await stream.write(PublishFrame(opens=[OPENING._replace(producer_name=name)]))
        answers = await anext(aiter(stream))
        assert [type(denied.error) for denied in answers.denied] == [InvalidName]
        assert topic.openings.empty()


@pytest.mark.asyncio
async def test_what_is_answered_when_the_client_is_done_is_still_sent() -> None:
    """Also what was answered while a frame was on its way."""
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
async def test_a_reader_that_breaks_the_rules_is_told_so() -> None:
    """Its stream ended as if all had been read, and the reason was lost with the task that knew it."""
    async with owner_serving() as (_, _, channel):
        stream = raw_stream(channel, READ.path)
        await stream.write(READ.encode_request(EARLIEST))
        await stream.read()
        await stream.write(NO_MESSAGE)
        assert await end_of(stream) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.asyncio
async def test_a_read_stream_without_a_start_ends_in_peace() -> None:
    """A client that thinks better of it is no failure of the server."""
    async with owner_serving() as (_, _, channel):
        stream = channel.stream(READ)
        await stream.finish()
        assert [frame async for frame in stream] == []


@pytest.mark.asyncio
async def test_whoever_waits_for_a_quiet_topic_and_goes_leaves_nothing_behind() -> None:
    """On a topic where nothing is published, each reader that came and went stayed in memory for ever."""
    async with owner_serving() as (topic, _, _):
        waiting = asyncio.create_task(topic.progress.until_after(Position(LedgerId(1), EntryId(0))))
        await until(lambda: topic.progress.waiting_count == 1, 10)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert topic.progress.waiting_count == 0


@pytest.mark.asyncio
async def test_many_answers_go_out_in_frames_of_a_bounded_size() -> None:
    """All in one, they would be larger than a frame may be, and end the stream with everything on it."""
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
