"""Messages that cannot be read, in a process whose messages take effect in a database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text

import oncelog
from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import CorruptEntry
from oncelog_effects import Process, SqlEffects
from oncelog_effects.processes import OnCorruptName, run_processes
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0


class Booking:
    def __init__(self, client: oncelog.AsyncClient, directory: Path) -> None:
        self._client = client
        self._engine = create_engine(f"sqlite:///{directory}/effects.db")
        with self._engine.begin() as connection:
            connection.execute(text("CREATE TABLE invoices (id integer PRIMARY KEY)"))

    def process(self, on_corrupt: OnCorruptName) -> Process[Connection]:
        def book(message: oncelog.Message, connection: Connection) -> None:
            connection.execute(text("INSERT INTO invoices VALUES (:id)"), {"id": message.index})

        effects: SqlEffects[Connection] = SqlEffects(self._engine)
        return Process(book, "flights", subscription="billing", effects=effects, on_corrupt=on_corrupt)

    @asynccontextmanager
    async def running(self, process: Process[Connection]) -> AsyncIterator[None]:
        task = asyncio.ensure_future(run_processes(self._client, [process]))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def invoices(self) -> list[int]:
        with self._engine.begin() as connection:
            return [row[0] for row in connection.execute(text("SELECT id FROM invoices ORDER BY id"))]


def _stands_at(process: Process[Connection], position: int) -> bool:
    return [status.position for status in process.statuses.values()] == [position]


@pytest.mark.hazard("corrupt-message-rewound")
@pytest.mark.parametrize("behind", [0, 4], ids=["the last ones", "in the middle"])
async def test_position_passes_what_cannot_be_read(
    cluster: FakeCluster, client: oncelog.AsyncClient, tmp_path: Path, behind: int
) -> None:
    """And the next process does not ask for it again."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=4 * 5)
    await producer.send_many([b"%x" % i for i in range(8 + behind)])

    def mangle(entry: StoredEntry) -> StoredEntry:
        damaged = entry.base_index == 4
        return replace(entry, data=bytes(entry.data[:-1]) + b"?") if damaged else entry

    cluster.consume.mangle = mangle
    booking = Booking(client, tmp_path)
    strict = booking.process("raise")
    with pytest.raises(CorruptEntry):
        await asyncio.wait_for(run_processes(client, [strict]), DEADLINE_S)
    assert booking.invoices() == [0, 1, 2, 3]
    for run in range(2):
        process = booking.process("skip")
        async with booking.running(process):
            passed = partial(_stands_at, process, 8 + behind)
            await until(passed, DEADLINE_S, waiting_for="the position behind what cannot be read")
        [status] = process.statuses.values()
        assert (status.rewound, status.skipped) == (0, 0 if run else 4)
        acks = cluster.topic("flights").ack_state.subscriptions[1].acks  # type: ignore[index]
        assert acks.mark_delete == 8 + behind
    assert booking.invoices() == [0, 1, 2, 3, *range(8, 8 + behind)]
