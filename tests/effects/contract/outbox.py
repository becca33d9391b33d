"""One outbox on a real database, relays of it, and a log in memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError, ProducerFenced
from oncelog_effects.core.outbox.relay import OutboxRelay
from oncelog_effects.core.outbox.resume import Happened
from oncelog_effects.core.outbox.streams import LogMessage
from oncelog_effects.outbox.database import OutboxDatabase
from oncelog_effects.outbox.log import Opened, Sent
from oncelog_effects.outbox.relay import RelayProcess
from oncelog_effects.outbox.resuming import Deleted, resume
from oncelog_effects.outbox.row_reading import OutboxRow
from oncelog_effects.outbox.tables import OutboxTables
from tests.cluster.until import until
from tests.effects.contract.sql_database import Database

DEADLINE_S = 30.0
LEASE_MS = 1_000


@dataclass(slots=True)
class Log:
    """Of one topic; the same for all relays. first: of the messages that retention has kept."""

    topic_id: str = "0f" * 16
    messages: list[LogMessage] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    first: int = 0
    holder: object = None

    def cut(self, count: int) -> None:
        del self.messages[count:], self.values[count:]


class OneRelaysLog:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._attempt = 0

    async def partitions(self, _: str) -> int:
        return 0

    async def open(self, _: str, attempt: int) -> Opened:
        self._log.holder, self._attempt = self, attempt
        return Opened(self._log.topic_id, len(self._log.messages) - 1, 1_000)

    async def send(self, topic: str, attempt: int, rows: Sequence[OutboxRow]) -> Sent:
        log = self._log
        if log.holder is not self or attempt != self._attempt:
            raise ProducerFenced(topic)
        assert rows[0].number == len(log.messages), "the producer is contiguous"
        log.messages += [LogMessage(row.number, row.event_id, f"1:{row.number}:0") for row in rows]
        log.values += [row.value for row in rows]
        return Sent(log.messages[-1].message_id, False)

    async def stored(self, _: str, after: str, last: int) -> AsyncIterator[Sequence[LogMessage]]:
        behind = int(after.split(":")[1]) if after else -1
        for message in self._log.messages[self._log.first :]:
            if behind < message.number <= last:
                yield [message]

    async def close_all(self) -> None:
        pass


class Outbox:
    """One outbox, and a log."""

    def __init__(self, shop: Database, log: Log, keep_ms: int) -> None:
        self._url = shop.engine.url.render_as_string(hide_password=False)
        self.shop = shop
        self.log = log
        self.keep_ms = keep_ms

    def database(self) -> OutboxDatabase:
        return OutboxDatabase(self._url, OutboxTables(), keep_ms=self.keep_ms, lease_ms=LEASE_MS)

    async def insert(self, *values: str) -> None:
        for value in values:
            word = f"convert_to('{value}', 'UTF8')" if self.shop.is_postgres else f"'{value}'"
            await self.shop.run(f"INSERT INTO oncelog_outbox (topic, value) VALUES ('orders', {word})")

    async def left(self) -> int:
        ((count,),) = await self.shop.run("SELECT count(*) FROM oncelog_outbox WHERE stored_at_ms IS NULL")
        return int(count)

    @asynccontextmanager
    async def relayed(self) -> AsyncIterator["asyncio.Task[None]"]:
        core = OutboxRelay(poll_ms_min=1, poll_ms_max=20, lease_ms=LEASE_MS, keeps=bool(self.keep_ms))
        relay = RelayProcess(lambda _id, _table: OneRelaysLog(self.log), self.database(), core)
        task = asyncio.create_task(relay.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def send_all(self, *values: str) -> None:
        await self.insert(*values)
        async with self.relayed() as task:

            async def sent() -> bool:
                return task.done() or not await self.left()

            await until(sent, DEADLINE_S, every_s=0.01, waiting_for="the rows")
            if task.done():
                task.result()

    async def send_those_that_can(self) -> None:
        """Until each row is stored, or refused."""
        async with self.relayed() as task:

            async def done() -> bool:
                open_rows = "SELECT count(*) FROM oncelog_outbox WHERE stored_at_ms IS NULL AND refused IS NULL"
                ((count,),) = await self.shop.run(open_rows)
                return task.done() or not count

            await until(done, DEADLINE_S, every_s=0.01, waiting_for="the rows")
            if task.done():
                task.result()

    async def refused(self) -> OncelogError:
        async with self.relayed() as task:
            await until(task.done, DEADLINE_S, every_s=0.01, waiting_for="the end of the relay")
            error = task.exception()
        assert isinstance(error, OncelogError)
        return error

    async def resume(self, happened: Happened, *, topic: str = "", deleted: Deleted | None = None) -> list[str]:
        told: list[str] = []
        await resume(
            lambda _id, _table: OneRelaysLog(self.log), self.database(), happened, topic, deleted=deleted,
            tell=told.append,
        )  # fmt: skip
        return told
