"""The recipe "Copier", with a lease and by name: killed, moved, and run twice at once, it copies each input once."""

from collections.abc import Awaitable, Callable

import pytest

import oncelog
from tests.cluster.programs import DEADLINE_S, running
from tests.cluster.recipes.copier_runs import copy_through_kills
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

KILLS = 3


@pytest.mark.parametrize("program", ["copier.py", "copier_by_name.py"])
async def test_copy_has_each_input_once_in_order(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], client: oncelog.AsyncClient, program: str
) -> None:
    """`make copier-proof` kills it a hundred times."""
    source, target = f"from-{program}", f"to-{program}"
    producer = await client.create_producer(source, producer_name="source")
    topic = await watched(target)
    inputs = await copy_through_kills(
        programs, producer, topic, lambda saved: programs.start(program, source, target, saved), KILLS, seed=2
    )
    assert topic.values == inputs


async def test_former_run_is_fenced_and_ends(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], client: oncelog.AsyncClient
) -> None:
    """At its next message, once the second one has its lease."""
    producer = await client.create_producer("copied-from", producer_name="source")
    inputs = [b"0"]
    await producer.send_many(inputs)
    topic = await watched("copied-to")
    former = programs.start("copier.py", "copied-from", "copied-to", "saved")
    await former.reaches(lambda: topic.has(1), "a copy")
    async with running(programs.start("copier.py", "copied-from", "copied-to", "saved")) as second:

        async def fenced() -> bool:
            inputs.append(b"%d" % len(inputs))
            await producer.send_many(inputs[-1:])
            return not former.runs()

        await until(fenced, DEADLINE_S, every_s=0.1, waiting_for="the end of the former program")
        assert "ProducerFenced" in await former.ends(1)
        await second.reaches(lambda: topic.has(len(inputs)), "the last copy")
    assert topic.values == inputs


async def test_saved_lease_repeats_what_is_stored(
    client: oncelog.AsyncClient, watched: Callable[[str], Awaitable[Watched]], caplog: pytest.LogCaptureFixture
) -> None:
    """It is announced, because nothing tells new content by compressed bytes. A renewal says where new messages go."""
    [saved] = await client.lease_producer_ids([oncelog.LeaseWanted("saved-lease")])
    assert isinstance(saved, oncelog.ProducerLease)
    topic = await watched("saved-lease")
    values = [b"0", b"1", b"2"]
    producer = await client.create_producer("saved-lease", lease=saved)
    await producer.send_many(values)
    await producer.close()
    assert not caplog.records
    again = await client.create_producer("saved-lease", lease=saved, compression="zlib")
    assert (again.last_sequence_id, again.repeats_ahead) == (2, 3)
    assert "lease the id again" in caplog.records[-1].message
    for number, value in enumerate([*values, b"3"]):
        result = await again.send(value)
        assert (result.sequence_id, result.duplicate, result.content_differs) == (number, number < 3, None)
    assert again.repeats_ahead == 0
    [renewed] = await client.lease_producer_ids(
        [oncelog.LeaseWanted("saved-lease", saved.producer_id, saved.generation)]
    )
    assert isinstance(renewed, oncelog.ProducerLease)
    assert (renewed.generation, renewed.last_sequence_id) == (saved.generation, 3)
    await until(lambda: topic.has(4), DEADLINE_S)
    assert topic.values == [*values, b"3"]
