"""The relay's process and `resume` on real databases, with a log in memory: each accident, and what helps."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from oncelog.core.errors import InvalidArgument, OncelogError, ProducerFenced, StoreUnavailable
from oncelog.core.outbox.errors import LogLostMessages, OutboxDiverged, OutboxRestored, TopicRecreated
from oncelog.core.outbox.relay import OutboxRelay
from oncelog.core.outbox.resume import Happened
from oncelog.core.outbox.streams import LogMessage
from oncelog.outbox.database import OutboxDatabase, OutboxRow
from oncelog.outbox.log import Opened, Sent
from oncelog.outbox.relay import RelayProcess
from oncelog.outbox.resuming import Deleted, resume
from oncelog.outbox.tables import OutboxTables
from tests.cluster.until import until
from tests.contract.effects.sql_database import Database

pytestmark = pytest.mark.asyncio

TOPIC = "public/default/orders"
DEADLINE_S = 30.0
LEASE_MS = 1_000
NEWEST = "id = (SELECT max(id) FROM oncelog_outbox)"


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


@pytest.fixture(params=["postgresql", "sqlite-keep"])
def made(request: pytest.FixtureRequest) -> Outbox:
    kind, _, keep = request.param.partition("-")
    shop = request.getfixturevalue("on_sqlite" if kind == "sqlite" else "on_postgres")
    return Outbox(shop, Log(), 3_600_000 if keep else 0)


@pytest_asyncio.fixture
async def outbox(made: Outbox) -> Outbox:
    """With its tables."""
    database = made.database()
    await database.connect()
    await database.close()
    return made


async def stream(outbox: Outbox, **columns: object) -> None:
    """Change the stream by hand, as a restore does."""
    changes = ", ".join(f"{name} = {value!r}" for name, value in columns.items())
    await outbox.shop.run(f"UPDATE oncelog_outbox_streams SET {changes}")


@pytest.mark.hazard("restored-row-sent-again", "numbers-given-twice-after-a-restore")
async def test_after_a_restore_only_what_the_log_lacks_is_sent(outbox: Outbox) -> None:
    """Of rows with a number of before, rows that were sent in the lost time, and rows that are lost."""
    await outbox.send_all("a", "b")
    await outbox.insert("c", "d")
    events = [row[0] for row in await outbox.shop.run("SELECT event_id FROM oncelog_outbox ORDER BY id")][-2:]
    await outbox.send_all("lost", "lost too")
    for event, value in zip(events, "cd", strict=True):
        await outbox.shop.run(f"DELETE FROM oncelog_outbox WHERE event_id = '{event}'")
        await outbox.insert(value)
        await outbox.shop.run(f"UPDATE oncelog_outbox SET event_id = '{event}' WHERE {NEWEST}")
    await outbox.shop.run("DELETE FROM oncelog_outbox WHERE stored_at_ms IS NOT NULL AND number > 1")
    await outbox.shop.run(f"UPDATE oncelog_outbox SET stream = 1, number = 2 WHERE {NEWEST}")
    await stream(outbox, next_number=3, confirmed=1, confirmed_message="1:1:0")
    await outbox.insert("e")
    error = await outbox.refused()
    assert isinstance(error, OutboxRestored | OutboxDiverged)
    assert await outbox.left() == 3
    told = await outbox.resume(Happened.RESTORED)
    assert len([line for line in told if "does not have its row" in line]) == 2
    assert "2 rows stored already, 2 messages without a row; next: 6" in told[-1]
    await outbox.send_all("f")
    assert outbox.log.values == [b"a", b"b", b"c", b"d", b"lost", b"lost too", b"e", b"f"]


async def test_what_retention_has_deleted_is_decided_by_the_operator(outbox: Outbox) -> None:
    """Nothing says whether the messages were those of the rows."""
    for deleted, wanted in (("stored", [b"new"]), ("unsent", [b"one", b"two", b"new"])):
        outbox.log.cut(0)
        outbox.log.first = 0
        for table in ("oncelog_outbox", "oncelog_outbox_streams"):
            await outbox.shop.run(f"DELETE FROM {table}")
        await outbox.send_all("zero")
        await outbox.insert("one", "two")
        ((key,),) = await outbox.shop.run("SELECT stream FROM oncelog_outbox_streams")
        rows = await outbox.shop.run("SELECT id, event_id FROM oncelog_outbox WHERE number IS NULL ORDER BY id")
        for number, (row, _) in enumerate(rows, 1):
            await outbox.shop.run(f"UPDATE oncelog_outbox SET stream = {key}, number = {number} WHERE id = {row}")
        await stream(outbox, next_number=3)
        outbox.log.messages += [LogMessage(n, str(event), f"1:{n}:0") for n, (_, event) in enumerate(rows, 1)]
        outbox.log.values += [b"sent before"] * 2
        outbox.log.first = 3
        assert "retention has deleted it" in str(await outbox.refused())
        with pytest.raises(OutboxDiverged, match="--deleted stored"):
            await outbox.resume(Happened.RESTORED)
        await outbox.resume(Happened.RESTORED, deleted=deleted)  # type: ignore[arg-type]
        await outbox.send_all("new")
        assert outbox.log.values[3:] == wanted


async def test_after_a_loss_of_the_log_kept_rows_are_sent_again(outbox: Outbox) -> None:
    await outbox.send_all("a", "b", "c")
    outbox.log.cut(1)
    await outbox.insert("d")
    error = await outbox.refused()
    assert isinstance(error, LogLostMessages)
    assert error.details == {"topic": TOPIC, "first": 1, "last": 2}
    with pytest.raises(LogLostMessages, match="--log-lost"):
        await outbox.resume(Happened.RESTORED)
    (told,) = await outbox.resume(Happened.LOG_LOST, topic=TOPIC)
    assert "has lost 2 messages behind number 0" in told
    await outbox.send_all("e")
    assert outbox.log.values == ([b"a", b"b", b"c", b"d", b"e"] if outbox.keep_ms else [b"a", b"d", b"e"])
    with pytest.raises(OutboxDiverged, match="lost nothing"):
        await outbox.resume(Happened.LOG_LOST, topic=TOPIC)


async def test_another_topic_gets_what_is_left(outbox: Outbox) -> None:
    await outbox.send_all("a")
    outbox.log.cut(0)
    outbox.log.topic_id = "f0" * 16
    await outbox.insert("b")
    error = await outbox.refused()
    assert isinstance(error, TopicRecreated)
    assert f"--other-topic {TOPIC}" in str(error)
    with pytest.raises(TopicRecreated):
        await outbox.resume(Happened.RESTORED)
    with pytest.raises(InvalidArgument, match="it has: public/default/orders"):
        await outbox.resume(Happened.OTHER_TOPIC, topic="public/default/other")
    await outbox.resume(Happened.OTHER_TOPIC, topic=TOPIC)
    await outbox.send_all("c")
    assert outbox.log.values == [b"b", b"c"]


async def test_resume_waits_for_no_relay_that_works(outbox: Outbox) -> None:
    """It says so, and has changed nothing."""
    await outbox.send_all("a")
    async with outbox.relayed():

        async def works() -> bool:
            database = outbox.database()
            await database.connect()
            try:
                return await database.has_relay()
            finally:
                await database.close()

        await until(works, DEADLINE_S, every_s=0.05, waiting_for="the claim")
        with pytest.raises(StoreUnavailable, match="stop all relays"):
            await resume(
                lambda _id, _table: OneRelaysLog(outbox.log), outbox.database(), Happened.RESTORED, "", deleted=None,
                tell=print, wait_s=0.1,
            )  # fmt: skip
    await outbox.send_all("b")
    assert outbox.log.values == [b"a", b"b"]
