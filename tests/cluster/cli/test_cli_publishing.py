"""Batches of lines are sent, paced, counted and stopped; the test sets the responses of the producer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import StringIO

import pytest
from rich.console import Console

from oncelog.cli.produce.line_file import LineBlock
from oncelog.cli.produce.publishing import BATCHES_PENDING_MAX, Pace, Publishing
from oncelog.cli.read.told import WaitingHint
from oncelog.core.errors import StaleSequence
from tests.cluster.until import until

_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Given:
    """An answer of the producer."""

    count: int
    duplicates: int = 0
    unverified_ranges: list[range] = field(default_factory=list)
    differing_ranges: list[range] = field(default_factory=list)


class HeldProducer:
    """A producer that acknowledges a batch when the test tells it to."""

    def __init__(self) -> None:
        #: [(ids, future of its fate)], in the order in which they were handed over
        self.sent: list[tuple[list[int] | None, asyncio.Future[Given]]] = []

    async def send_many(self, values: list[bytes], *, sequence_ids: list[int] | None = None) -> Given:
        future: asyncio.Future[Given] = asyncio.get_running_loop().create_future()
        self.sent.append((sequence_ids, future))
        return await future


class Story:
    """Records all progress notifications."""

    def __init__(self) -> None:
        self.acks: list[tuple[int, int, int]] = []

    def opened(self, producer_name: str, last_sequence_id: int, start: int) -> None: ...

    def acked(self, lines: int, duplicates: int, offset: int) -> None:
        self.acks.append((lines, duplicates, offset))

    def ended(self) -> None: ...


async def blocks_of(*sizes: int) -> AsyncIterator[LineBlock]:
    """Blocks of so many lines of one byte each."""
    start = 0
    for size in sizes:
        offsets = [start + 2 * number for number in range(size)]
        start += 2 * size
        yield LineBlock([b"x"] * size, offsets, start)


def answer(producer: HeldProducer, fate: Given) -> None:
    """All batches without a response."""
    for _, future in producer.sent:
        if not future.done():
            future.set_result(fate)


def silent() -> WaitingHint:
    """Of a command without a terminal."""
    return WaitingHint(Console(file=StringIO()), "nothing")


async def turns(count: int) -> None:
    """Run the other tasks for this many iterations of the event loop."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


@pytest.mark.asyncio
async def test_acknowledged_offset_has_no_gaps() -> None:
    """A later batch that is acknowledged first must not make an earlier one look stored: a resumed run would skip
    it."""
    producer, story = HeldProducer(), Story()
    publishing = Publishing(producer, story, None, 0, silent())
    run = asyncio.create_task(publishing.run(blocks_of(2, 3)))
    await until(lambda: len(producer.sent) == 2, _DEADLINE_S)
    producer.sent[1][1].set_result(Given(3, duplicates=2, differing_ranges=[range(2)]))
    await turns(5)
    assert publishing.progress.offset == 0
    producer.sent[0][1].set_result(Given(2, duplicates=1, unverified_ranges=[range(1)]))
    await run
    assert story.acks == [(2, 1, 4), (5, 3, 10)]
    assert publishing.progress.stored == 2
    assert (publishing.progress.unverified, publishing.progress.differing) == (1, 2)


@pytest.mark.asyncio
async def test_wait_for_acknowledgements_is_told_on_a_terminal() -> None:
    """Nothing is printed while all is acknowledged at once."""
    said, producer = StringIO(), HeldProducer()
    waiting = WaitingHint(Console(file=said, force_terminal=True, width=100), "acknowledgements of orders")
    publishing = Publishing(producer, Story(), None, 0, waiting)
    run = asyncio.create_task(publishing.run(blocks_of(1)))
    await until(lambda: len(producer.sent) == 1, _DEADLINE_S)
    assert said.getvalue() == ""
    await until(lambda: "waiting for acknowledgements of orders" in said.getvalue(), _DEADLINE_S)
    answer(producer, Given(1))
    await run


@pytest.mark.asyncio
async def test_batches_in_flight_are_limited() -> None:
    """If the cluster does not respond, a large file must not fill the memory."""
    producer = HeldProducer()
    publishing = Publishing(producer, Story(), None, 0, silent())
    run = asyncio.create_task(publishing.run(blocks_of(*[1] * 200)))
    await until(lambda: len(producer.sent) >= BATCHES_PENDING_MAX, _DEADLINE_S)
    await turns(50)
    assert len(producer.sent) <= BATCHES_PENDING_MAX + 2

    def answered() -> bool:
        answer(producer, Given(1))
        return run.done()

    await until(answered, _DEADLINE_S)
    assert publishing.progress.acked == 200


@pytest.mark.asyncio
async def test_stop_waits_for_batches_in_flight() -> None:
    """After Ctrl-C nothing more is read. Batches in flight are still counted, so that the reported progress is
    correct."""
    producer = HeldProducer()
    publishing = Publishing(producer, Story(), 1.0, 0, silent())
    run = asyncio.create_task(publishing.run(blocks_of(5)))
    await until(lambda: len(producer.sent) == 1, _DEADLINE_S)
    publishing.stop()
    answer(producer, Given(1))
    await run
    assert publishing.stopped
    assert (publishing.progress.sent, publishing.progress.acked, publishing.progress.offset) == (1, 1, 2)


@pytest.mark.asyncio
async def test_error_ends_the_run_with_correct_progress() -> None:
    """The summary after an error counts exactly the messages that were acknowledged before it."""
    producer = HeldProducer()
    publishing = Publishing(producer, Story(), None, 0, silent())
    run = asyncio.create_task(publishing.run(blocks_of(2, 2)))
    await until(lambda: len(producer.sent) == 2, _DEADLINE_S)
    producer.sent[0][1].set_result(Given(2))
    producer.sent[1][1].set_exception(StaleSequence("never stored"))
    with pytest.raises(ExceptionGroup) as caught:
        await run
    assert caught.group_contains(StaleSequence)
    assert (publishing.progress.sent, publishing.progress.acked, publishing.progress.offset) == (4, 2, 4)


def test_pace_allows_its_rate() -> None:
    """At 1000 lines a second, 20 lines are allowed after 20 ms, and none of them twice."""
    pace = Pace(1000.0, 0.0)
    assert pace.grant(0.0) == 0
    assert pace.grant(0.0201) == 20
    pace.used(20)
    assert pace.grant(0.0201) == 0
    assert pace.grant(0.0301) == 10


def test_pace_catches_up_by_one_second_at_most() -> None:
    """After a long pause the backlog must not be sent to the cluster all at once."""
    pace = Pace(1000.0, 0.0)
    assert pace.grant(3600.0) == 1000


def test_no_rate_means_no_limit() -> None:
    """The default is no limit."""
    assert Pace(None, 0.0).grant(0.0) is None
