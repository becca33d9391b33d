"""Read streams of an owner: permits, the end, what is not sent, and readers that go away."""

import asyncio

import pytest

from oncelog.core.errors import InvariantViolated, NotOwner, ServiceUnavailable, TopicLoading
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import Position, ProducerId
from oncelog.core.topic.events import HigherEpochReported
from oncelog.core.topic.topic import Phase
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.reader_codec import ReadControl, ReceivedEntries, StartEdge, StartMessage
from tests.cluster.until import until
from tests.contract.shown_log import ReadingStream, ShownLog, at, read_serving, reading

DEADLINE_S = 10.0


def positions(frame: ReceivedEntries) -> list[Position]:
    return [peek_header(entry).position for entry in frame.entries]


async def received(stream: ReadingStream) -> ReceivedEntries:
    return await anext(aiter(stream))


async def until_end(stream: ReadingStream) -> list[Position]:
    """Everything up to the first frame that says it is at the end."""
    got: list[Position] = []
    async for frame in stream:
        got += positions(frame)
        if frame.at_end:
            return got
    raise AssertionError("the stream ended before its end")


def a_log(*counts: int, cached: bool = False) -> ShownLog:
    log = ShownLog()
    log.open_ledger(1)
    log.add(*counts, cached=cached)
    return log


@pytest.mark.asyncio
@pytest.mark.parametrize("cached", [False, True])
async def test_control_entries_are_not_sent(cached: bool) -> None:
    """A reader gets messages; grants are the owner's own."""
    log = a_log(0, 2, 0, 0, 1, 0, cached=cached)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST)
        assert await until_end(stream) == [at(1, 1), at(1, 4)]
        assert bool(log.reads) is not cached


@pytest.mark.asyncio
async def test_the_end_is_told_once_for_each_position() -> None:
    """A reader that waits for messages is not woken by nothing; one that asks "is that all" gets its answer."""
    log = a_log()
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST)
        frame = await received(stream)
        assert (frame.at_end, frame.entries) == (True, [])
        for _ in range(2):
            await until(lambda: log.progress.waiting_count, DEADLINE_S)
            log.progress.changed()
        last = log.add(1)
        frame = await received(stream)
        assert (frame.at_end, positions(frame), frame.confirmed) == (True, [last], last)
        control = log.add(0)
        frame = await received(stream)
        assert (frame.at_end, frame.entries, frame.confirmed) == (True, [], control)


@pytest.mark.asyncio
async def test_nothing_is_sent_without_a_permit_and_one_byte_of_it_lets_one_frame_through() -> None:
    """A slow reader holds its own stream and no memory of the owner; the largest entry fits through any permit."""
    log = ShownLog()
    log.open_ledger(1)
    log.add(1, 1, 1, size=FRAME_BYTES_TARGET)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST, permit_bytes=0)
        for number in range(3):
            waiting = asyncio.ensure_future(received(stream))
            await until(lambda: log.reads, DEADLINE_S)
            assert not waiting.done()
            await stream.write(ReadControl(None, 1 if number == 0 else 2 * FRAME_BYTES_TARGET))
            assert positions(await waiting) == [at(1, number)]


@pytest.mark.asyncio
@pytest.mark.parametrize("cached", [False, True])
async def test_a_start_inside_an_entry_is_told_even_with_a_control_entry_behind_it(cached: bool) -> None:
    """The index was forgotten when a grant followed in the same page, and messages before the start came again."""
    log = a_log(0, 3, 0, 1, cached=cached)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartMessage(at(1, 1), 1, inclusive=True))
        frame = await received(stream)
        assert (frame.first_batch_index, positions(frame)) == (1, [at(1, 1), at(1, 3)])


@pytest.mark.asyncio
async def test_the_index_of_a_start_that_was_trimmed_is_not_applied_to_another_entry() -> None:
    """Else the first messages of what is kept were passed over."""
    log = a_log(3)
    log.open_ledger(2)
    log.add(3)
    log.trim(1)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartMessage(at(1, 0), 1, inclusive=True))
        frame = await received(stream)
        assert (frame.first_batch_index, positions(frame)) == (0, [at(2, 0)])


@pytest.mark.asyncio
async def test_the_index_of_a_start_is_not_applied_to_the_frames_after_it() -> None:
    """Each frame has its own."""
    log = a_log(3)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartMessage(at(1, 0), 1, inclusive=False))
        assert (await received(stream)).first_batch_index == 2
        log.add(3)
        assert (await received(stream)).first_batch_index == 0


@pytest.mark.asyncio
async def test_a_reader_that_goes_away_while_it_waits_leaves_nothing_behind() -> None:
    """For messages or for its permits."""
    log = a_log(1)
    async with read_serving(log) as channel:
        at_end = await reading(channel, StartEdge.LATEST)
        await received(at_end)
        await until(lambda: log.progress.waiting_count == 1, DEADLINE_S)
        at_end.cancel()
        await until(lambda: log.progress.waiting_count == 0, DEADLINE_S)
        done = await reading(channel, StartEdge.EARLIEST, permit_bytes=0)
        await until(lambda: log.reads, DEADLINE_S)
        await done.finish()
        assert [frame async for frame in done] == []


@pytest.mark.asyncio
@pytest.mark.parametrize("phase", [Phase.DEPOSED, Phase.CLOSED])
async def test_a_reader_is_told_when_the_topic_is_lost(phase: Phase) -> None:
    """Its next stop is the new owner; the epoch beside it keeps it from coming back to an older one."""
    log = a_log(1)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.LATEST)
        await received(stream)
        log.end(phase)
        frames = [frame async for frame in stream]
        assert [(type(frame.error), frame.owner_epoch) for frame in frames] == [(NotOwner, 3)]
        late = await reading(channel, StartEdge.EARLIEST)
        assert [type(frame.error) async for frame in late] == [NotOwner]


@pytest.mark.asyncio
@pytest.mark.parametrize("cached", [False, True])
async def test_no_message_is_sent_while_its_producer_cannot_be_named(cached: bool) -> None:
    """A topic whose state is being made anew under a reader: nameless, it would be one stored without deduplication."""
    log = a_log(1, cached=cached)
    log.add(2, cached=cached, producer_id=ProducerId(7))
    assert log.core.serving is None
    async with read_serving(log) as channel:
        frames = [frame async for frame in await reading(channel, StartEdge.EARLIEST)]
    assert [type(frame.error) for frame in frames] == [TopicLoading]


@pytest.mark.asyncio
async def test_a_reader_waits_for_a_topic_that_is_being_taken_over() -> None:
    """It came a moment too early, which is no reason to send it away."""
    log = a_log(1)
    log.core.phase = Phase.RECOVERING
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST)
        await until(lambda: log.progress.waiting_count == 1, DEADLINE_S)
        log.core.phase = Phase.SERVING
        log.progress.changed()
        assert await until_end(stream) == [at(1, 0)]


@pytest.mark.asyncio
@pytest.mark.parametrize("recorded", [False, True])
async def test_a_reader_that_has_seen_a_newer_owner_is_sent_there(recorded: bool) -> None:
    """Where the record says so too, the topic hears of it, for it may be the last to."""
    log = a_log(1)
    log.newer_recorded = recorded
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST, epoch_seen=4)
        assert [type(frame.error) async for frame in stream] == [NotOwner]
        assert log.posted == ([HigherEpochReported()] if recorded else [])


class BrokenLog(ShownLog):
    """A topic that goes on after a broken invariant."""

    def post(self, event: object) -> None:
        raise InvariantViolated(f"broken before {event}")


@pytest.mark.asyncio
async def test_a_broken_invariant_that_a_reader_meets_is_told_to_the_loop() -> None:
    """It ends the process. As one answer among others, it left a process in an unknown state serving on."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context.get("exception")))
    log = BrokenLog()
    log.newer_recorded = True
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST, epoch_seen=4)
        with pytest.raises(ServiceUnavailable):
            await received(stream)
        assert InvariantViolated in map(type, told)
