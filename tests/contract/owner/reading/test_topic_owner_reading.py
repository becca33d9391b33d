"""Read streams of an owner: permits, the end, what is not sent, and readers that go away."""

import asyncio

import pytest

from oncelog.core.errors import InvariantViolated, NotOwner, ServiceUnavailable, TopicLoading
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import Position, ProducerId
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.events import HigherEpochReported
from oncelog.rpc.codecs.reader_codec import ReadControl, ReceivedEntries, StartEdge, StartMessage
from oncelog.rpc.options import FRAME_BYTES_TARGET
from tests.cluster.until import until
from tests.contract.owner.reading.shown_log import ReadingStream, ShownLog, at, read_serving, reading

DEADLINE_S = 30.0


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
    """A reader gets messages. Grants are internal to the owner."""
    log = a_log(0, 2, 0, 0, 1, 0, cached=cached)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST)
        assert await until_end(stream) == [at(1, 1), at(1, 4)]
        assert bool(log.reads) is not cached


@pytest.mark.asyncio
async def test_at_end_is_sent_once_for_each_position() -> None:
    """A waiting reader gets no empty frame, and a reader that asks whether there is more gets its answer."""
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
async def test_one_byte_of_permit_allows_one_frame() -> None:
    """Without a permit nothing is read or sent, so a slow reader takes no memory. The largest entry fits through any
    permit."""
    log = ShownLog()
    log.open_ledger(1)
    log.add(1, 1, 1, size=FRAME_BYTES_TARGET)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST, permit_bytes=0)
        for number in range(3):
            waiting = asyncio.ensure_future(received(stream))
            await received(
                await reading(channel, StartEdge.EARLIEST, permit_bytes=1)
            )  # meanwhile another one is served
            assert not waiting.done()
            await stream.write(ReadControl(None, 1 if number == 0 else 2 * FRAME_BYTES_TARGET))
            assert positions(await waiting) == [at(1, number)]


@pytest.mark.asyncio
@pytest.mark.parametrize("cached", [False, True])
async def test_start_inside_an_entry_is_sent_with_a_control_entry_behind_it(cached: bool) -> None:
    """The index used to be lost when a grant followed in the same page, and earlier messages came again."""
    log = a_log(0, 3, 0, 1, cached=cached)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartMessage(at(1, 1), 1, inclusive=True))
        frame = await received(stream)
        assert (frame.first_batch_index, positions(frame)) == (1, [at(1, 1), at(1, 3)])


@pytest.mark.asyncio
async def test_reader_of_a_trimmed_message_id_is_told_where_the_log_begins() -> None:
    """Once, with its first messages, of which it skips none; and not one that starts elsewhere."""
    log = a_log(3)
    log.open_ledger(2)
    log.add(3)
    log.trim(1)
    for start, below in (
        (StartMessage(at(1, 0), 1, False), 3),
        (StartMessage(at(2, 0), 0, True), 0),
        (StartEdge.EARLIEST, 0),
    ):
        async with read_serving(log) as channel:
            stream = await reading(channel, start)
            frame = await received(stream)
            assert (frame.trimmed_below, frame.first_batch_index) == (below, 0)
            log.add(1)
            assert (await received(stream)).trimmed_below == 0


@pytest.mark.asyncio
async def test_batch_index_of_a_start_applies_to_the_first_frame_only() -> None:
    """Later frames begin at their first message."""
    log = a_log(3)
    async with read_serving(log) as channel:
        stream = await reading(channel, StartMessage(at(1, 0), 1, inclusive=False))
        assert (await received(stream)).first_batch_index == 2
        log.add(3)
        assert (await received(stream)).first_batch_index == 0


@pytest.mark.asyncio
async def test_reader_that_disconnects_while_waiting_leaves_no_task() -> None:
    """It waits for messages, or for permits."""
    log = a_log(1)
    async with read_serving(log) as channel:
        at_end = await reading(channel, StartEdge.LATEST)
        await received(at_end)
        await until(lambda: log.progress.waiting_count == 1, DEADLINE_S)
        at_end.cancel()
        await until(lambda: log.progress.waiting_count == 0, DEADLINE_S)
        log.add(1, 1, size=FRAME_BYTES_TARGET)
        done = await reading(channel, StartEdge.EARLIEST, permit_bytes=1)
        await received(done)
        await done.finish()
        assert [frame async for frame in done] == []


@pytest.mark.asyncio
@pytest.mark.parametrize("phase", [Phase.DEPOSED, Phase.CLOSED])
async def test_reader_gets_an_error_when_the_topic_is_lost(phase: Phase) -> None:
    """It continues at the new owner. The epoch in the error keeps it from coming back to an older one."""
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
async def test_no_message_is_sent_without_the_name_of_its_producer(cached: bool) -> None:
    """During a takeover the names are unknown. Without a name it would look like a message without deduplication."""
    log = a_log(1, cached=cached)
    log.add(2, cached=cached, producer_id=ProducerId(7))
    assert log.core.serving is None
    async with read_serving(log) as channel:
        frames = [frame async for frame in await reading(channel, StartEdge.EARLIEST)]
    assert [type(frame.error) for frame in frames] == [TopicLoading]


@pytest.mark.asyncio
async def test_reader_waits_for_a_takeover() -> None:
    """It arrived a moment too early."""
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
async def test_reader_with_a_higher_epoch_is_refused(recorded: bool) -> None:
    """If the record confirms the epoch, the topic is notified, because it may not know yet."""
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
async def test_violated_invariant_in_a_read_ends_the_process() -> None:
    """As an ordinary error it would leave a process in an unknown state serving."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context.get("exception")))
    log = BrokenLog()
    log.newer_recorded = True
    async with read_serving(log) as channel:
        stream = await reading(channel, StartEdge.EARLIEST, epoch_seen=4)
        with pytest.raises(ServiceUnavailable):
            await received(stream)
        assert InvariantViolated in map(type, told)
