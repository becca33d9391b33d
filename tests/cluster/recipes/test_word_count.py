"""The recipe "Word count": killed while it counts, every word is counted once, and every line's counts are published
once."""

import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import oncelog
from tests.cluster.programs import DEADLINE_S, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

LINES = 4_000
WORDS = ["to", "be", "or", "not", "question"]


def line(number: int) -> str:
    return " ".join(WORDS[number * step % len(WORDS)] for step in range(number % 7)) + f" w{number % 101}"


async def test_words_are_counted_once(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], client: oncelog.AsyncClient
) -> None:
    """The last counts that are published for each word are those of a plain count; also if two programs count at the
    same time."""
    topic = await watched("word-counts")
    producer = await client.create_producer("text-lines", producer_name="text")
    for first in range(0, LINES, 20):
        await producer.send_many([line(number).encode() for number in range(first, first + 20)])
    start = partial(programs.start, "word_count.py", "counts.db")
    await programs.killed_often(start, lambda: topic.count, LINES)
    async with running(start()) as one, running(start()) as other:
        # The later one fences the other one, or finds that it has counted meanwhile.
        await until(
            lambda: topic.count >= LINES or not (one.runs() and other.runs()), DEADLINE_S, waiting_for="the end of one"
        )
    async with running(start()) as counting:
        await counting.reaches(lambda: topic.count >= LINES and position(programs) == LINES, "all lines")
    plain: Counter[str] = Counter()
    expected = []
    for number in range(LINES):
        words = line(number).split()
        plain.update(words)
        expected.append({word: plain[word] for word in words})
    assert [json.loads(value) for value in topic.values] == expected
    assert [message.sequence_id for message in topic.messages] == list(range(LINES))
    with sqlite3.connect(programs.directory / "counts.db") as database:
        assert dict(database.execute("select word, count from counts")) == plain
    database.close()


def position(programs: Programs) -> int:
    """The saved one."""
    database = sqlite3.connect(programs.directory / "counts.db")
    try:
        (index,) = database.execute("select next_index from position").fetchone()
    finally:
        database.close()
    return int(index)
