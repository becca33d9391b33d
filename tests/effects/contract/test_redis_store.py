"""What a store of effects in Redis does besides what every store does: it undoes nothing, forgets, and is a cluster."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from typer.testing import CliRunner, Result

from oncelog.core.effect_errors import EffectMisuse, PartialEffect, StoreMissing, StoreNotTransactional
from oncelog.core.errors import InvalidArgument, NotFound, StoreMismatch, StoreUnavailable
from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog_effects.cli.effects.app import effects as effects_app
from oncelog_effects.core.effects.ordered import StoredPosition
from oncelog_effects.core.effects.ordered import claimed as decide_claim
from oncelog_effects.core.effects.redis_rows import Resolution
from oncelog_effects.redis_commands import COMMANDS_MAX, EffectPipeline
from oncelog_effects.redis_store import RedisEffects
from oncelog_effects.store import EffectRefused
from tests.cluster.kills import just_seen, kill
from tests.cluster.until import until
from tests.contract.stores.cut_proxy import CutProxy, Loss
from tests.contract.stores.redis_process import RedisProcess
from tests.core.delivery.bound_log import LOG
from tests.effects.contract.benches import RedisBench
from tests.effects.contract.positions import NAMES, SOURCE, at, claimed, stored
from tests.effects.contract.redis_numbers import append_numbers

pytestmark = pytest.mark.asyncio

ROW = f"oncelog:{SOURCE.effect}:{SOURCE.topic_id}:{SOURCE.partition}"
#: Numbers of a program that is killed before it is at its end.
NEVER_REACHED = 1_000_000


def fails_behind_one(pipe: EffectPipeline) -> None:
    pipe.rpush("numbers", 1)
    pipe.incr("numbers")
    pipe.rpush("numbers", 2)


async def partial(bench: RedisBench, following: StoredPosition | None = None) -> RedisEffects:
    effects = bench.effects()
    await claimed(effects)
    with pytest.raises(PartialEffect, match=r"command 2 has failed .*WRONGTYPE") as error:
        await effects.apply(SOURCE, at(0), following or at(1), fails_behind_one)
    assert (error.value.details["index"], error.value.details["command"]) == (0, 2)
    return effects


@pytest.mark.hazard("partial-effect-repeated")
async def test_effect_that_fails_in_the_middle_stops_every_consumer(on_redis: RedisBench) -> None:
    """Redis does not undo the first command, so nobody may run it again."""
    effects = await partial(on_redis)
    with pytest.raises(PartialEffect):
        await effects.apply(SOURCE, at(0), at(1), on_redis.function(1))
    with pytest.raises(PartialEffect):
        await effects.apply(SOURCE, at(1), at(2), on_redis.function(3))
    with pytest.raises(PartialEffect, match="oncelog effects resolve"):
        await claimed(on_redis.effects())
    assert await on_redis.numbers() == [1]


@pytest.mark.hazard("partial-effect-repeated")
@pytest.mark.parametrize(
    ("resolution", "position", "pending_dead"),
    [(Resolution.APPLIED, 1, None), (Resolution.AGAIN, 0, None), (Resolution.DEAD_LETTER, 1, 0)],
)
async def test_operator_resolves_a_partial_effect(
    on_redis: RedisBench, resolution: Resolution, position: int, pending_dead: int | None
) -> None:
    """The claim of the program that met it is void."""
    effects = await partial(on_redis)
    row = await effects.resolve(SOURCE, resolution)
    assert (row.position, row.pending_dead) == (position, pending_dead)
    assert row.claim != at(0).claim
    assert await stored(on_redis.effects()) == row
    with pytest.raises(NotFound):
        await effects.resolve(SOURCE, resolution)
    await effects.apply(SOURCE, row, at(5), on_redis.function(9))
    assert await on_redis.numbers() == [1, 9]


@pytest.mark.hazard("error-without-a-text")
async def test_error_of_the_server_may_be_no_text(on_redis: RedisBench) -> None:
    """It repeats the name of a group that is no UTF-8."""
    effects = on_redis.effects()
    await claimed(effects)
    await on_redis.run("XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM")

    def fail(pipe: EffectPipeline) -> None:
        pipe.xgroup_createconsumer("stream", b"g\xff", "c")

    def fail_behind(pipe: EffectPipeline) -> None:
        pipe.rpush("numbers", 1)
        fail(pipe)

    with pytest.raises(EffectRefused, match="NOGROUP"):
        await effects.apply(SOURCE, at(0), at(1), fail)
    with pytest.raises(PartialEffect, match=r"consumer group 'g\\xff'"):
        await effects.apply(SOURCE, at(0), at(1), fail_behind)
    with pytest.raises(PartialEffect, match=r"consumer group 'g\\xff'"):
        await claimed(on_redis.effects())
    assert (await effects.resolve(SOURCE, Resolution.APPLIED)).position == 1


async def test_command_resolves_the_effect_of_its_topic_only(on_redis: RedisBench) -> None:
    await partial(on_redis)
    url = on_redis.server.url
    for topic, subscription in (("orders", "audit"), ("other", "billing"), ("orders-partition-1", "billing")):
        refused = await run_resolve(topic, subscription, "--redis", url, "--applied", "--yes")
        assert (refused.exit_code, "no effect of" in refused.stderr) == (1, True), refused.stderr
    assert "choose one of" in (await run_resolve("orders", "billing", "--redis", url)).stderr
    done = await run_resolve("public/default/orders", "billing", "--redis", url, "--again", "--yes")
    assert (done.exit_code, done.stdout) == (0, "public/default/orders goes on at index 0: start the program\n")
    assert (await stored(on_redis.effects())).position == 0


async def run_resolve(*arguments: str) -> Result:
    return await asyncio.to_thread(lambda: CliRunner().invoke(effects_app, ["resolve", *arguments]))


async def test_batch_is_no_dead_letter(on_redis: RedisBench) -> None:
    effects = await partial(on_redis, at(3))
    with pytest.raises(InvalidArgument, match="messages 0 to 2"):
        await effects.resolve(SOURCE, Resolution.DEAD_LETTER)
    assert (await effects.resolve(SOURCE, Resolution.AGAIN)).position == 0


async def test_effect_whose_first_command_fails_is_tried_again(on_redis: RedisBench) -> None:
    """It has done nothing."""
    effects = on_redis.effects()
    await claimed(effects)
    await effects.apply(SOURCE, at(0), at(1), on_redis.function(0))

    def fail(pipe: EffectPipeline) -> None:
        pipe.incr("numbers")
        pipe.rpush("numbers", 1)

    with pytest.raises(EffectRefused, match="WRONGTYPE"):
        await effects.apply(SOURCE, at(1), at(2), fail)
    assert await stored(effects) == at(1)
    await effects.apply(SOURCE, at(1), at(2), on_redis.function(1))
    assert await on_redis.numbers() == [0, 1]


MISUSES: dict[str, Callable[[EffectPipeline], Any]] = {
    "writes nothing": lambda pipe: pipe.get("numbers"),
    "no command frobnicate": lambda pipe: pipe.pipeline_execute_command("frobnicate", 1),
    "wrong number of arguments": lambda pipe: pipe.pipeline_execute_command("SET", "a"),
    "flushall cannot be": lambda pipe: pipe.flushall(),
    "fcall cannot be": lambda pipe: pipe.fcall("f", 0),
    "blpop cannot be": lambda pipe: pipe.blpop(["numbers"]),
    "must not execute": lambda pipe: pipe.execute(),
    "must not begin": lambda pipe: pipe.multi(),
    "cannot use WATCH": lambda pipe: pipe.watch("numbers"),  # type: ignore[no-untyped-call]
    "must not use the key": lambda pipe: pipe.delete(ROW),
    f"at most {COMMANDS_MAX} commands": lambda pipe: [pipe.incr("n") for _ in range(COMMANDS_MAX + 1)],
    "words, and at most": lambda pipe: pipe.rpush("numbers", *range(5_000)),
    "Invalid input": lambda pipe: pipe.set("a", object()),  # type: ignore[arg-type]
}


@pytest.mark.hazard("half-an-effect")
async def test_what_could_fail_in_the_middle_is_refused_before(on_redis: RedisBench) -> None:
    """Behind a command that would have taken effect."""
    effects = on_redis.effects()
    await claimed(effects)
    for message, misuse in MISUSES.items():

        def run(pipe: EffectPipeline, misuse: Callable[[EffectPipeline], Any] = misuse) -> None:
            pipe.rpush("numbers", 1)
            misuse(pipe)

        with pytest.raises(EffectMisuse, match=message):
            await effects.apply(SOURCE, at(0), at(1), run)
    assert (await on_redis.numbers(), await stored(effects)) == ([], at(0))


async def test_function_that_keeps_its_pipe_is_refused(on_redis: RedisBench) -> None:
    effects = on_redis.effects()
    await claimed(effects)
    kept: list[EffectPipeline] = []
    await effects.apply(SOURCE, at(0), at(1), kept.append)
    with pytest.raises(EffectMisuse, match="has ended"):
        kept[0].incr("n")


@pytest.mark.hazard("effects-table-dropped")
async def test_missing_position_is_an_error(on_redis: RedisBench) -> None:
    """Deleted or evicted, while the log knows the store; and if all is deleted, it is another store."""
    effects = on_redis.effects()
    await claimed(effects)
    await on_redis.run("DEL", ROW)
    store_id = await effects.store_id()
    log = replace(LOG, store_id=store_id)
    with pytest.raises(StoreMissing):
        await effects.claim(SOURCE, NAMES, lambda found: decide_claim(found, log, store_id, "c"))
    await on_redis.run("FLUSHALL")
    with pytest.raises(StoreMismatch, match="start the program again"):
        await claimed(effects)


async def test_server_that_may_evict_is_refused(on_redis: RedisBench) -> None:
    """Also if it is set while the program runs."""
    effects = on_redis.effects()
    await claimed(effects)
    await on_redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    for each in (effects, on_redis.effects()):
        with pytest.raises(StoreNotTransactional, match="allkeys-lru"):
            await claimed(each)


async def test_full_server_takes_nothing_and_goes_on_later(on_redis: RedisBench) -> None:
    effects = on_redis.effects()
    await claimed(effects)
    await on_redis.run("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await effects.apply(SOURCE, at(0), at(1), on_redis.function(0))
    await on_redis.run("CONFIG", "SET", "maxmemory", "0")
    assert await stored(effects) == at(0)
    await on_redis.run("SCRIPT", "FLUSH")
    await effects.apply(SOURCE, at(0), at(1), on_redis.function(0))
    assert await on_redis.numbers() == [0]


async def test_client_that_decodes_is_the_same(on_redis: RedisBench) -> None:
    with redis.Redis(port=on_redis.server.port, decode_responses=True) as client:
        effects = RedisEffects(client)
        await claimed(effects)
        await effects.apply(SOURCE, at(0), at(1), on_redis.function(0))
    assert await stored(on_redis.effects()) == at(1)


@pytest.mark.hazard("plain-read-of-a-position")
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
async def test_each_number_is_there_once_whichever_answer_is_lost(tmp_path: Path, loss: Loss) -> None:
    """Of the scripts and of all else; the client does not repeat by itself."""
    with RedisProcess.running(tmp_path) as server:
        async with CutProxy.running(server.port) as proxy:
            retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
            for nth in range(0, 14, 1 if loss is Loss.REPLY else 3):
                async with redis.asyncio.Redis(port=server.port) as direct:
                    await direct.flushall()
                proxy.loss, proxy.passing_first = loss, nth
                async with redis.asyncio.Redis(port=proxy.port, retry=retry) as client:
                    await append_numbers(client, 4)
                    assert proxy.loss is Loss.NONE, f"there is no request {nth}"
                async with redis.asyncio.Redis(port=server.port, decode_responses=True) as direct:
                    assert await direct.lrange("numbers", 0, -1) == ["0", "1", "2", "3"], nth
                    assert await direct.get("sum") == "6"


async def test_each_number_is_there_once_although_program_and_server_are_killed(tmp_path: Path) -> None:
    with RedisProcess.running(tmp_path) as server:
        command = guarded([sys.executable, "-m", "tests.effects.contract.redis_numbers", str(server.port)])

        async def length() -> int:
            async with redis.asyncio.Redis(port=server.port) as client:
                return int(await client.llen("numbers"))

        for kill_server in (False, True):
            done = await length()
            program = await asyncio.create_subprocess_exec(*command, str(NEVER_REACHED))

            async def goes_on(done: int = done) -> bool:
                return await length() > done

            if kill_server:
                await until(goes_on, 30, every_s=0.001, waiting_for="a number")
                server.kill(once=just_seen)
                server.start()
            await kill(program.pid, once=goes_on)
            await program.wait()
        count = await length() + 10
        program = await asyncio.create_subprocess_exec(*command, str(count))
        assert await program.wait() == 0
        async with redis.asyncio.Redis(port=server.port, decode_responses=True) as client:
            assert await client.lrange("numbers", 0, -1) == [str(number) for number in range(count)]
            assert await client.get("sum") == str(sum(range(count)))


async def test_cluster_needs_keys_of_one_slot(tmp_path: Path) -> None:
    """The effect is refused before its first command."""
    # The port among members is otherwise 10,000 higher than the other, which does not exist for each free port.
    with (
        claim_port("127.0.0.1") as members,
        RedisProcess.running(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(port_of(members))) as server,
    ):
        with redis.Redis(port=server.port) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)

            def is_ok() -> bool:
                info: dict[str, str] = client.execute_command("CLUSTER INFO")
                return info["cluster_state"] == "ok"

            await until(is_ok, 30, waiting_for="the cluster")
            with pytest.raises(InvalidArgument, match="give a hash_tag"):
                await claimed(RedisEffects(client))
        with redis.RedisCluster(host="127.0.0.1", port=server.port) as cluster:
            effects = RedisEffects(cluster, hash_tag="shop")
            await claimed(effects)

            def two_slots(pipe: EffectPipeline) -> None:
                pipe.rpush("numbers-{shop}", 1)
                pipe.rpush("numbers", 1)

            with pytest.raises(EffectMisuse, match=r"numbers is in another slot .*CROSSSLOT"):
                await effects.apply(SOURCE, at(0), at(1), two_slots)

            def one_slot(pipe: EffectPipeline) -> None:
                pipe.rpush("numbers-{shop}", 1)

            await effects.apply(SOURCE, at(0), at(1), one_slot)
            assert cluster.lrange("numbers-{shop}", 0, -1) == [b"1"]
            assert await stored(effects) == at(1)


@pytest.mark.parametrize(
    ("client", "settings"), [(object(), {}), (redis.Redis(), {"hash_tag": ""}), (redis.Redis(), {"hash_tag": "{a}"})]
)
async def test_bad_settings_are_refused(client: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        RedisEffects(client, **settings)
