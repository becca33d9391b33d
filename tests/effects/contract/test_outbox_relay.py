"""The relay's process and `resume` on real databases, with a log in memory: each accident, and what helps."""

import pytest
import pytest_asyncio

from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.outbox_errors import LogLostMessages, OutboxDiverged, OutboxRestored, TopicRecreated
from oncelog_effects.core.outbox.resume import Happened
from oncelog_effects.core.outbox.streams import LogMessage
from oncelog_effects.outbox.resuming import resume
from tests.cluster.until import until
from tests.effects.contract.outbox import DEADLINE_S, Log, OneRelaysLog, Outbox

pytestmark = pytest.mark.asyncio

TOPIC = "public/default/orders"
NEWEST = "id = (SELECT max(id) FROM oncelog_outbox)"


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
