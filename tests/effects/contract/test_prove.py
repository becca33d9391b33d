"""`oncelog_effects.testing.prove`: what it says of functions that are right, and that it finds those that are wrong."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

import oncelog
from oncelog.core.errors import InvalidArgument
from oncelog.testing import messages
from oncelog_effects import FileAppend, FileEffects, Process, RedisEffects, SqlEffects
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.store import ClaimLost
from oncelog_effects.testing import MemoryEffects, ProofFailed, prove
from oncelog_effects.testing.proving import STEPS
from tests.contract.stores.redis_process import RedisProcess
from tests.effects.postgres_process import PostgresProcess

ORDERS = messages([json.dumps({"cents": n}) for n in range(4)], keys=[f"order-{n}" for n in range(4)])
WITHOUT_RESTORE = tuple(step for step in STEPS if step != "restored")
STATE = "SELECT order_key, cents FROM invoices ORDER BY order_key"
RESET = "DELETE FROM invoices"


def process(effects: Any, function: Callable[..., Any], **settings: Any) -> Process[Any]:
    return oncelog.process("orders", subscription="billing", effects=effects, **settings)(function)


def row_of(message: oncelog.Message) -> dict[str, object]:
    assert message.key is not None
    return {"key": message.key.decode(), "cents": json.loads(message.value)["cents"]}


INSERT = text("INSERT INTO invoices VALUES (:key, :cents)")


def book(message: oncelog.Message, connection: Connection) -> None:
    connection.execute(INSERT, row_of(message))


async def book_async(message: oncelog.Message, connection: AsyncConnection) -> None:
    await connection.execute(INSERT, row_of(message))


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE invoices (order_key text, cents integer)")
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture(scope="module")
def postgres() -> Any:
    with PostgresProcess.running() as server:
        server.query("CREATE TABLE invoices (order_key text, cents integer)")
        yield server.url.replace("postgresql:", "postgresql+psycopg:")


WANTED = [(f"order-{n}", n) for n in range(4)]


def test_function_on_sqlite(sqlite: str) -> None:
    proof = prove(process(SqlEffects(create_engine(sqlite)), book), ORDERS, state=STATE, reset=RESET)
    assert proof == (STEPS, WANTED)


def test_function_on_postgres(postgres: str) -> None:
    effects = SqlEffects(create_async_engine(postgres))
    assert prove(process(effects, book_async), ORDERS, state=STATE, reset=[RESET]) == (WITHOUT_RESTORE, WANTED)


def test_function_that_commits_by_a_connection_of_its_own_is_found(postgres: str) -> None:
    """What it commits stays when its transaction does not."""
    own = create_engine(postgres)

    def wrong(message: oncelog.Message, _: Connection) -> None:
        with own.begin() as connection:
            book(message, connection)

    with pytest.raises(ProofFailed, match=r"Step 'function'.*order-0.*order-0"):
        prove(process(SqlEffects(create_engine(postgres)), wrong), ORDERS, state=STATE, reset=RESET)
    own.dispose()


def test_function_in_batches(tmp_path: Path) -> None:
    def export(batch: Sequence[oncelog.Message], append: FileAppend) -> None:
        for message in batch:
            append.write(message.value)

    effects = FileEffects(tmp_path / "orders")
    proof = prove(process(effects, export, batch=3), ORDERS)
    assert proof == (STEPS, b"".join(message.value for message in ORDERS))


def test_function_in_redis(tmp_path: Path) -> None:
    def book_in_redis(message: oncelog.Message, pipe: Any) -> None:
        pipe.hincrby("cents", message.key, row_of(message)["cents"])
        pipe.rpush("orders", message.key)

    with RedisProcess.running(tmp_path) as server, redis.Redis(port=server.port) as client:
        proof = prove(
            process(RedisEffects(client), book_in_redis, max_attempts=1),
            ORDERS,
            state=lambda: (client.hgetall("cents"), client.lrange("orders", 0, -1)),
            reset=lambda: client.delete("cents", "orders"),
        )
        keys = [message.key for message in ORDERS]
        assert proof == (WITHOUT_RESTORE, ({key: b"%d" % n for n, key in enumerate(keys)}, keys))


@pytest.mark.parametrize(
    ("second", "what"), [(False, "not ended within 3 s: EffectRefused.*WRONGTYPE"), (True, "ends with PartialEffect")]
)
def test_command_that_fails_is_tried_again_unless_others_are_done(tmp_path: Path, *, second: bool, what: str) -> None:
    """By the source, which ends with an effect that is there in part."""

    def fails(message: oncelog.Message, pipe: Any) -> None:
        if second:
            pipe.incr("done")
        pipe.incr("list")

    with RedisProcess.running(tmp_path) as server, redis.Redis(port=server.port) as client:
        client.rpush("list", 1)
        with pytest.raises(ProofFailed, match=what):
            prove(process(RedisEffects(client), fails), ORDERS, state=lambda: 1, reset=lambda: None, timeout=3)


def counting(message: oncelog.Message, data: dict[Any, Any]) -> None:
    data[message.key] = data.get(message.key, 0) + 1


def test_function_in_memory() -> None:
    assert prove(process(MemoryEffects(), counting), ORDERS) == (STEPS, {message.key: 1 for message in ORDERS})


class PositionAlone(MemoryEffects):
    def _check(self, source: Source, claimed: StoredPosition) -> None:
        found = self._rows.get(source)
        if found is None or found.position != claimed.position:
            raise ClaimLost


@pytest.mark.hazard("position-without-claim")
def test_store_that_does_not_check_the_claim_is_found() -> None:
    """By the redo: a process of before it comes at the same position as its successor."""
    with pytest.raises(ProofFailed, match="'redo': a process that was stopped before the redo has written after it"):
        prove(process(PositionAlone(), counting), ORDERS)


def test_function_that_counts_outside_of_the_store_is_found() -> None:
    seen: list[int] = []

    def wrong(message: oncelog.Message, data: dict[Any, Any]) -> None:
        seen.append(message.index)
        data[message.index] = len(seen)

    with pytest.raises(ProofFailed, match="the effects do not happen once"):
        prove(process(MemoryEffects(), wrong), ORDERS, reset=seen.clear)


def test_function_that_fails_is_told_with_its_error() -> None:
    def fails(message: oncelog.Message, data: dict[Any, Any]) -> None:
        raise KeyError(message.index)

    with pytest.raises(ProofFailed, match="raises without any fault: KeyError") as error:
        prove(process(MemoryEffects(), fails), ORDERS)
    assert isinstance(error.value.__cause__, KeyError)


def test_reset_that_leaves_something_is_told(sqlite: str) -> None:
    effects, kept = SqlEffects(create_engine(sqlite)), [1]
    with pytest.raises(ProofFailed, match="does not bring back"):
        prove(process(effects, book), ORDERS, state=lambda: 7 * len(kept), reset=lambda: kept.append(1))


def test_function_that_does_not_end_is_told() -> None:
    async def hangs(message: oncelog.Message, data: dict[Any, Any]) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(ProofFailed, match=r"not ended within 0\.2 s"):
        prove(process(MemoryEffects(), hangs), ORDERS, timeout=0.2)


@pytest.mark.parametrize(
    ("settings", "field"), [({"reset": RESET}, "state"), ({"state": STATE}, "reset")], ids=["state", "reset"]
)
def test_missing_arguments_are_named(sqlite: str, settings: dict[str, Any], field: str) -> None:
    for given, wanted in ((ORDERS, field), ([], "messages")):
        with pytest.raises(InvalidArgument) as error:
            prove(process(SqlEffects(create_engine(sqlite)), book), given, **settings)
        assert error.value.details["field"] == wanted


def test_messages_are_as_a_consumer_gets_them() -> None:
    made = messages(["é", b"b"], keys=[None, "k"], properties=[{"a": "1"}, None], event_times_ms=[5, None])
    assert [(m.index, m.value, m.key, dict(m.properties), m.event_time_ms) for m in made] == [
        (0, "é".encode(), None, {"a": "1"}, 5),
        (1, b"b", b"k", {}, None),
    ]
    with pytest.raises(ValueError, match="shorter"):
        messages([b"a", b"b"], keys=["k"])
