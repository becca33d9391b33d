"""A copier of the recipes, killed at random moments, moved with its state, and run twice at once by mistake."""

import asyncio
import random
import shutil
from collections.abc import Callable

import oncelog
from tests.cluster.programs import DEADLINE_S, Running, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

#: The source is never further ahead of the copy, so that each kill meets a copier at work.
AHEAD = 1_000
SAVED = "saved"


async def feed(producer: oncelog.AsyncProducer, inputs: list[bytes], topic: Watched, enough: asyncio.Event) -> None:
    """Add inputs as the copy goes on."""
    while not enough.is_set():
        wanted = len(inputs) - AHEAD
        await until(
            lambda: topic.has(wanted) or enough.is_set(),  # noqa: B023
            2 * DEADLINE_S,
            waiting_for=f"{wanted} copies",
        )
        batch = [b"%d" % number for number in range(len(inputs), len(inputs) + 250)]
        inputs += batch
        await producer.send_many(batch)


async def copy_through_kills(
    programs: Programs, producer: oncelog.AsyncProducer, topic: Watched, start: Callable[[str], Running], kills: int,
    seed: int,
) -> list[bytes]:  # fmt: skip
    """Returns the inputs, all of which were copied. start: run a copier whose state is at this path.

    Two begin at once at first, and later now and then; the state moves before the last run, and now and then.
    """
    rng, inputs, machine = random.Random(seed), list[bytes](), 0
    (programs.directory / "0").mkdir()
    enough = asyncio.Event()
    feeding = asyncio.ensure_future(feed(producer, inputs, topic, enough))
    killed, both, moved = 0, 0, 0
    while killed < kills:
        runs = [start(f"{machine}/{SAVED}")]
        if not killed or rng.random() < 0.25:
            both += 1
            runs.append(start(f"{machine}/{SAVED}"))
        wanted = topic.count + rng.choice((1, rng.randint(1, 2 * AHEAD)))
        await until(lambda: topic.has(wanted), DEADLINE_S, waiting_for=f"{wanted} copies")  # noqa: B023
        for each in runs:
            killed += each.runs()
            each.end()  # of two at once, one may have ended before: the other one has fenced it
        if killed >= kills or rng.random() < 0.2:
            moved, machine = moved + 1, machine + 1
            shutil.move(programs.directory / str(machine - 1), programs.directory / str(machine))
    enough.set()
    await feeding
    async with running(start(f"{machine}/{SAVED}")) as last:
        await last.reaches(lambda: topic.has(len(inputs)), "the last copy")
    print(f"\n{len(inputs)} inputs, {killed} kills, {both} times two at once, {moved} moves")
    return inputs
