"""`oncelog effects translate`: effects in a database stay once over a failover of clusters."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

import oncelog
from oncelog_effects import SqlEffects
from oncelog_effects.processes import Process, run_processes
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.commands import COMMAND_TIMEOUT_S, environment
from tests.cluster.forked_program import run_forked
from tests.cluster.until import until
from tests.effects.cluster.mirroring import once

pytestmark = pytest.mark.asyncio


def booked(engine: Engine) -> list[str]:
    with engine.begin() as connection:
        return list(connection.execute(text("SELECT value FROM booked ORDER BY rowid")).scalars())


async def apply(client: oncelog.AsyncClient, engine: Engine, topic: str, count: int) -> None:
    """Run the program until the table has so many rows."""

    def book(message: oncelog.Message, connection: Any) -> None:
        connection.execute(text("INSERT INTO booked VALUES (:value)"), {"value": message.value.decode()})

    process = Process(book, topic, subscription="books", effects=SqlEffects(engine))
    running = asyncio.ensure_future(run_processes(client, [process]))
    await until(lambda: running.done() or len(booked(engine)) >= count, DEADLINE_S, waiting_for=f"{count} rows")
    running.cancel()
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


async def translate(cluster: Cluster, topic: str, path: Path, *words: str) -> tuple[int, str]:
    words = (
        "effects", "translate", topic, "books", "--database", f"sqlite:///{path}", "--to", cluster.url, "--yes", *words,
    )  # fmt: skip
    done = await asyncio.to_thread(run_forked, words, environment(), timeout_s=COMMAND_TIMEOUT_S)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.hazard("producer-fails-over")
async def test_effects_go_on_in_the_copy_each_once(
    cluster: Cluster, client: oncelog.AsyncClient, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Some messages had their effect at the source, others were copied before; what is not copied is refused first."""
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE booked (value TEXT)"))
    producer = await source.create_producer("booked")
    await producer.send_many([b"%d" % number for number in range(5)])
    await once(source, client, "booked")
    await producer.send_many([b"5", b"6"])
    await apply(source, engine, "booked", 7)
    code, said = await translate(cluster, "booked", tmp_path / "books.db")
    assert code == 1
    assert "has the effects of messages of public/default/booked up to index 6, and copies end before index 5" in said
    await producer.send_many([b"7", b"8", b"9"])
    await once(source, client, "booked")
    code, said = await translate(cluster, "booked", tmp_path / "books.db")
    assert code == 0, said
    assert "public/default/booked goes on at index 7" in said
    await (await client.create_producer("booked")).send(b"10")
    await apply(client, engine, "booked", 11)
    assert booked(engine) == [str(number) for number in range(11)]
    engine.dispose()


@pytest.mark.hazard("position-ahead-of-the-copy")
async def test_mixed_messages_are_not_translated(
    cluster: Cluster, client: oncelog.AsyncClient, source: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """A message that was published at the target lies before copies that have taken effect: no position says so."""
    engine = create_engine(f"sqlite:///{tmp_path / 'books.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE booked (value TEXT)"))
    producer = await source.create_producer("mixed")
    await producer.send(b"0")
    await once(source, client, "mixed")
    await (await client.create_producer("mixed")).send(b"of the target")
    await producer.send(b"1")
    await once(source, client, "mixed")
    await apply(source, engine, "mixed", 2)
    code, said = await translate(cluster, "mixed", tmp_path / "books.db")
    assert code == 1
    assert "the message at index 1 of the target has not taken effect, and the copy at index 2 has" in said
    engine.dispose()
