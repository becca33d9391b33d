"""The recipe "Copier": killed, moved to another machine, and run twice at once, it copies each input once, in order."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable

import pytest

import oncelog
from tests.cluster.recipes.recipe_programs import DEADLINE_S, Programs, Running, Watched, running
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

COUNT = 20_000
#: The source is never further ahead of the copy, so that each kill meets a copier at work.
AHEAD = 1_000


async def feed(producer: oncelog.AsyncProducer, inputs: list[bytes], topic: Watched) -> None:
    for start in range(0, COUNT, 250):
        wanted = start - AHEAD
        await until(lambda: topic.has(wanted), 2 * DEADLINE_S, waiting_for=f"{wanted} copies")  # noqa: B023
        await producer.send_many(inputs[start : start + 250])


async def test_copy_has_each_input_once_in_order(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], client: oncelog.AsyncClient
) -> None:
    """Two begin at once by mistake; the file with the id moves; a run is fenced by the next one and ends."""
    inputs = [b"%d" % number for number in range(COUNT)]
    producer = await client.create_producer("copied-from", producer_name="source")
    await producer.send_many(inputs[:1])
    topic = await watched("copied-to")
    feeding = asyncio.ensure_future(feed(producer, inputs[1:], topic))

    def start(saved: str = "saved") -> Running:
        return programs.start("copier.py", "copied-from", "copied-to", saved)

    both = [start(), start()]
    await until(lambda: topic.has(AHEAD), DEADLINE_S, waiting_for="the first copies")
    for each in both:
        each.kill()
    await programs.killed_often(start, lambda: topic.count, COUNT)
    (programs.directory / "elsewhere").mkdir()
    shutil.move(programs.directory / "saved", programs.directory / "elsewhere" / "saved")
    wanted = topic.count + 2 * AHEAD  # more than a killed run can have sent
    former = start("elsewhere/saved")
    await former.reaches(lambda: topic.has(wanted), "a copy from there")
    async with running(start("elsewhere/saved")) as second:
        await feeding

        async def fenced() -> bool:
            """The former program notices it at its next message, once the second one has its lease."""
            inputs.append(b"%d" % len(inputs))
            await producer.send_many(inputs[-1:])
            return not former.runs()

        await until(fenced, DEADLINE_S, every_s=0.1, waiting_for="the end of the former program")
        assert "ProducerFenced" in await former.ends(1)
        await second.reaches(lambda: topic.has(len(inputs)), "the last copy")
    assert topic.values == inputs
