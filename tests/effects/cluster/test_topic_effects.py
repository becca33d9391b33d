"""The program of docs/effects.md from topic to topic, killed; and functions that break its rules."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import oncelog
from oncelog.core.effect_errors import EffectMisuse, NotDeterministic
from oncelog.core.errors import InvalidArgument, StoreMismatch
from oncelog_effects import Output, Process, TopicEffects
from oncelog_effects.processes import run_processes
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.commands import command
from tests.cluster.programs import DEADLINE_S, Running, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

PAYMENTS = 400


def cents_of(number: int) -> int:
    return number * 100


@pytest.mark.hazard("outputs-of-another-code", "recreated-output")
async def test_each_payment_has_its_outputs_once(
    programs: Programs,
    cluster: Cluster,
    client: oncelog.AsyncClient,
    watched: Callable[[str], Awaitable[Watched]],
) -> None:
    """Although the program is killed, and the owner of an output; also in topics without deduplication. A recreated
    output ends it."""
    producer = await client.create_producer("payments")
    checked = await watched("checked")
    await cluster.change("POST", f"{rest_path('checked')}/deduplicationEnabled", json=False)
    await until(lambda: _not_deduplicated(cluster, "checked"), DEADLINE_S, waiting_for="its owner to have seen that")
    sent: list[dict[str, float]] = [{"cents": cents_of(n)} for n in range(PAYMENTS)]

    async def pay(first: int, count: int) -> None:
        for n in range(first, first + count, 50):
            await producer.send_many([json.dumps(each).encode() for each in sent[n : n + 50]], keys=[b"%d" % n] * 50)

    serve = command("run", "enrich:enrich")
    async with (
        running(programs.start_command("enrich-1", serve)) as one,
        running(programs.start_command("enrich-2", serve)) as other,
    ):
        # The order of the names that they draw decides which one is active.
        (waits,) = await until(lambda: _standby(one, other), DEADLINE_S, waiting_for="one of the two to wait")
        active = one if waits is other else other
        await pay(0, PAYMENTS // 2)
        await active.kill(once=lambda: checked.count)
        await pay(PAYMENTS // 2, PAYMENTS // 2)
        await waits.reaches(lambda: checked.has(PAYMENTS), "the outputs of the one that waited")
    await producer.send_many([json.dumps(each).encode() for each in sent])
    async with running(programs.start("enrich.py")) as third:
        await cluster.kill(await cluster.owner_of("checked"), once=lambda: checked.count > PAYMENTS)
        await third.reaches(lambda: checked.has(2 * PAYMENTS), "all outputs")
        await until(lambda: acknowledged(cluster, "payments", "enrich"), DEADLINE_S, every_s=0.1)
    async with running(programs.start("enrich.py")) as fourth:
        await producer.send(b'{"cents": 90000}')
        await fourth.reaches(lambda: checked.has(2 * PAYMENTS + 1), "an output behind all acknowledgements")
    everything = [*sent, *sent, {"cents": 90_000.0}]
    wanted = [{**each, "euros": each["cents"] / 100} for each in everything]
    assert [json.loads(value) for value in checked.values] == wanted
    assert [message.sequence_id % 1024 for message in checked.messages] == [0] * len(wanted)
    wanted = [each for each in everything if each["cents"] >= 20_000]
    async with await client.create_reader("large") as reader:
        large = [await anext(reader) for _ in wanted]
    assert [json.loads(message.value) for message in large] == wanted
    assert await client.last_message_id("large") == large[-1].message_id
    assert large[0].producer_name == f"effects/{topic_id_of(await last(client, 'payments'))}/enrich"
    await cluster.change("DELETE", rest_path("large"))
    ended = await programs.start("enrich.py").ends(1)
    assert "StoreMismatch" in ended


def _standby(*both: Running) -> list[Running]:
    """The one that waits for the other, by the last word of its log about it."""
    told = {
        each: [line for line in each.text().splitlines() if "standby: " in line or "active: " in line] for each in both
    }
    waiting = [each for each, lines in told.items() if lines and "standby: another process is active" in lines[-1]]
    return waiting if len(waiting) == 1 else []


async def _not_deduplicated(cluster: Cluster, topic: str) -> bool:
    return (await cluster.stats(topic)).get("deduplication_enabled") is False


async def acknowledged(cluster: Cluster, topic: str, subscription: str) -> bool:
    found = (await cluster.stats(topic)).get("subscriptions", {}).get(subscription, {})
    return int(found.get("msg_backlog", -1)) == 0


async def last(client: oncelog.AsyncClient, topic: str) -> oncelog.MessageId:
    found = await client.last_message_id(topic)
    assert found is not None
    return found


def topic_id_of(message_id: oncelog.MessageId) -> str:
    return message_id.topic_id


# --- functions --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def works(client: oncelog.AsyncClient, process: Process[Any]) -> Any:
    task = asyncio.ensure_future(run_processes(client, [process]))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def process(function: Callable[..., Any], topic: str, outputs: list[str], **settings: Any) -> Process[Any]:
    fanout_max = settings.pop("fanout_max", 4)
    effects = TopicEffects(outputs, fanout_max=fanout_max)
    return oncelog.process(topic, subscription="copy", effects=effects, **settings)(function)


async def test_other_outputs_than_those_that_are_stored_end_the_program(
    cluster: Cluster, client: oncelog.AsyncClient, watched: Callable[[str], Awaitable[Watched]]
) -> None:
    """A new version gives more outputs for messages that a seek delivers again. The same version changes nothing, also
    if its producer is fenced while its consumer is the active one."""
    producer = await client.create_producer("readings")
    await producer.send_many([b"%d" % n for n in range(20)])
    copies = await watched("readings-copy")

    async def copy(message: oncelog.Message) -> Any:
        yield Output("readings-copy", message.value)

    def twice(message: oncelog.Message) -> Iterator[Output]:
        yield Output("readings-copy", message.value)
        yield Output("readings-copy", message.value)

    async with works(client, process(copy, "readings", ["readings-copy"])):
        await until(lambda: copies.has(20), DEADLINE_S, waiting_for="the copies")
        await until(lambda: acknowledged(cluster, "readings", "copy"), DEADLINE_S, every_s=0.1)
    seek = f"{rest_path('readings')}/subscription/copy/resetcursor"
    await cluster.change("POST", seek, json={"index": 0})
    again = process(copy, "readings", ["readings-copy"])
    async with works(client, again):
        await until(lambda: acknowledged(cluster, "readings", "copy"), DEADLINE_S, every_s=0.1)
        name = f"effects/{topic_id_of(await last(client, 'readings'))}/copy"
        await client.create_producer("readings-copy", producer_name=name)  # fences the program's own
        await producer.send(b"20")
        await until(lambda: copies.has(21), DEADLINE_S, waiting_for="a new copy")
    assert copies.values == [b"%d" % n for n in range(21)]
    await cluster.change("POST", seek, json={"index": 0})
    async with works(client, process(twice, "readings", ["readings-copy"])) as ended:
        with pytest.raises(NotDeterministic, match="other outputs are stored than the function gives now"):
            await asyncio.wait_for(ended, DEADLINE_S)
    # Above the highest id of the same message nothing is known to be missing.
    assert copies.values in ([b"%d" % n for n in range(21)], [*(b"%d" % n for n in range(21)), b"20"])


async def test_partitioned_output_has_each_key_in_one_partition(
    cluster: Cluster, client: oncelog.AsyncClient, watched: Callable[[str], Awaitable[Watched]]
) -> None:
    """And outputs without a key by their number, so that they are found there again."""
    await cluster.change("PUT", f"{rest_path('shares')}/partitions", json=3)
    shares = await watched("shares")
    await (await client.create_producer("trades")).send_many([b"%d" % n for n in range(30)])

    async def share(message: oncelog.Message) -> list[Output]:
        return [Output("shares", message.value, key=f"k{message.index % 5}"), Output("shares", message.value)]

    async with works(client, process(share, "trades", ["shares"])):
        await until(lambda: shares.has(60), DEADLINE_S, waiting_for="the outputs")
        await until(lambda: acknowledged(cluster, "trades", "copy"), DEADLINE_S, every_s=0.1)
    await cluster.change("POST", f"{rest_path('trades')}/subscription/copy/resetcursor", json={"index": 0})
    async with works(client, process(share, "trades", ["shares"])):
        await until(lambda: acknowledged(cluster, "trades", "copy"), DEADLINE_S, every_s=0.1)
    assert shares.count == 60
    by_key = {key: {m.partition for m in shares.messages if m.key == key} for key in {m.key for m in shares.messages}}
    assert all(len(partitions) == 1 for key, partitions in by_key.items() if key is not None)
    assert by_key[None] == {0, 1, 2}
    for partition in range(3):
        values = [int(m.value) for m in shares.messages if m.partition == partition]
        assert values == sorted(values)


async def test_outputs_that_cannot_be_are_refused(client: oncelog.AsyncClient) -> None:
    """Nothing of such a message is acknowledged."""
    await (await client.create_producer("offers")).send(b"one")
    wrong: list[tuple[Callable[[Any], Any], str]] = [
        (lambda _: [Output("elsewhere", b"")], "elsewhere is not among the outputs"),
        (lambda _: [Output("offers-copy", b"")] * 5, "has more than 4 outputs"),
        (lambda _: ["text"], "yields an Output for each message, not str"),
        (lambda _: 7, "yields outputs, or returns a list of them, not int"),
    ]
    for function, reason in wrong:
        async with works(client, process(function, "offers", ["offers-copy"])) as ended:
            with pytest.raises(EffectMisuse, match=reason):
                await asyncio.wait_for(ended, DEADLINE_S)
    assert await client.last_message_id("offers-copy") is None
    for outputs, fields in (([], {}), (["a"] * 101, {}), (["copies"], {"fanout_max": 0})):
        with pytest.raises(InvalidArgument):
            TopicEffects(outputs, **fields)
    with pytest.raises(InvalidArgument, match="output of itself"):
        process(lambda _: None, "offers", ["offers"])
    with pytest.raises(InvalidArgument, match="at most 200"):
        process(lambda _: None, "offers", ["offers-copy"], effect="e" * 201)
    async with works(client, process(lambda _: None, "offers", ["offers-copy"], fanout_max=5)) as ended:
        with pytest.raises(StoreMismatch):
            await asyncio.wait_for(ended, DEADLINE_S)
