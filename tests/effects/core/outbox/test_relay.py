"""The relay dies at each of its effects; each of its rules is left out once, and missed."""

import random
from collections import Counter

import pytest

from oncelog.core.outbox_errors import LogLostMessages, OutboxDiverged, OutboxRestored, TopicRecreated
from oncelog.core.sdk.producer.routing import partition_of
from oncelog_effects.core.outbox.events import (
    ClaimRenewed,
    ConfirmRows,
    Disconnected,
    LogRead,
    OpenStream,
    RelayEffect,
    RelayEvent,
    SendRows,
    Stop,
    StreamOpened,
    TimerFired,
    TimerKind,
)
from oncelog_effects.core.outbox.relay import LOOK_ROWS_MAX, OutboxRelay
from oncelog_effects.core.outbox.resume import Happened
from oncelog_effects.core.outbox.sending import StreamState
from tests.effects.core.outbox.world import (
    TOPIC,
    VALUE_BYTES_MAX,
    Database,
    Log,
    Relay,
    finish,
    restored,
    resume,
    run_until_idle,
)

PAYMENTS = "public/default/payments"
ROWS = [("orders", f"order {n}") for n in range(6)] + [("payments", f"payment {n}") for n in range(4)]
STEPS_MAX = 80


def filled(rows: list[tuple[str, str]]) -> Database:
    database = Database()
    for topic, event_id in rows:
        database.insert(event_id, topic)
    return database


def assert_stored(log: Log) -> None:
    """Each row once, in its order."""
    assert log.events() == [event for topic, event in ROWS if topic == "orders"]
    assert log.events(PAYMENTS) == [event for topic, event in ROWS if topic == "payments"]


@pytest.mark.parametrize("under_way", ["lost", "stored", "late"])
@pytest.mark.parametrize("steps", range(STEPS_MAX))
def test_relay_may_die_at_each_of_its_effects(steps: int, under_way: str) -> None:
    """What it has sent is lost, arrives, or arrives after its successor has opened the producer. Rows are inserted all
    the time."""
    database, log, chance = filled(ROWS[:7]), Log(), random.Random(steps)
    first = Relay("first", database, log)
    first.connect()
    for done in range(steps + 1):
        if done == min(9, steps):
            for topic, event_id in ROWS[7:]:
                database.insert(event_id, topic)
        if first.due and done < steps:
            first.step(chance)
    sends = [(effect, first.load(effect)) for effect in first.due if isinstance(effect, SendRows)]
    if under_way == "stored":
        for send in sends:
            first.arrive(*send)
    database.claim = ""
    second = Relay("second", database, log)
    second.connect()
    run_until_idle(second, stop=lambda: any(isinstance(effect, SendRows) for effect in second.due))
    if under_way == "late":
        for send in sends:
            first.arrive(*send)
    run_until_idle(second)
    assert second.error is None
    assert_stored(log)
    assert not database.rows
    assert all(each.confirmed == each.next_number - 1 for each in database.streams.values())


@pytest.mark.parametrize("seed", range(60))
def test_two_relays_take_turns(seed: int) -> None:
    """Each takes the claim from the other at any time, also one that believes to have it still. Answers of the log get
    lost."""
    database, log, chance = filled(ROWS), Log(), random.Random(seed)
    relays = [Relay("one", database, log), Relay("two", database, log)]
    for relay in relays:
        relay.fails = chance
    for _ in range(300):
        relay = chance.choice(relays)
        if chance.random() < 0.05:
            database.claim = ""
            relay.connect()
        elif relay.due:
            relay.step(chance)
    assert [relay.error for relay in (*relays, finish(database, log))] == [None] * 3
    assert_stored(log)
    assert not database.rows


class EndsAtOnce(OutboxRelay):
    def _renewed(self, event: ClaimRenewed) -> list[RelayEffect]:
        raise AssertionError("it has ended before")

    def handle(self, event: RelayEvent) -> list[RelayEffect]:
        effects = super().handle(event)
        return effects if self._contradiction is None else [Stop(self._contradiction)]


@pytest.mark.hazard("stale-relay-finds-a-contradiction")
@pytest.mark.parametrize("make", [OutboxRelay, EndsAtOnce])
def test_relay_that_wakes_up_behind_another_one_ends_with_no_error(make: type[OutboxRelay]) -> None:
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    database.insert("b")
    database.claim = ""
    stopped = Relay("stopped", database, log, make=make)
    stopped.connect()
    run_until_idle(stopped, stop=lambda: any(isinstance(effect, OpenStream) for effect in stopped.due))
    assert finish(database, log).error is None
    run_until_idle(stopped)
    assert (stopped.error is None) == (make is OutboxRelay)


def test_partition_that_is_down_holds_only_its_own_rows() -> None:
    """Also rows that are inserted later. If a look sees rows of that partition only, its topic waits, and others do
    not. Once it is back, each partition has its rows in their order."""
    names = [f"{TOPIC}-partition-{number}" for number in range(2)]
    database, log = Database(), Log(partitions={TOPIC: 2}, down={names[1]})
    wanted: dict[str, list[str]] = {name: [] for name in names}

    def insert(count: int, *partitions: int) -> None:
        for _ in range(count):
            event_id = f"event {database.next_row}"
            partition = partition_of(event_id.encode(), 2)
            if partition in partitions:
                database.insert(event_id)
                wanted[names[partition]].append(event_id)
            else:
                database.next_row += 1

    insert(30, 0, 1)
    relay = Relay("first", database, log)
    relay.connect()
    for _ in range(2):
        run_until_idle(relay, stop=lambda: log.events(names[0]) == wanted[names[0]])
        insert(10, 0, 1)
        relay.feed(TimerFired(relay.core.claim, TimerKind.POLL))
    insert(2 * LOOK_ROWS_MAX + 100, 1)
    database.insert("payment", "payments")
    relay.feed(TimerFired(relay.core.claim, TimerKind.POLL))
    run_until_idle(relay, stop=lambda: log.events(PAYMENTS) == ["payment"])
    assert log.events(names[1]) == []
    log.down.clear()
    run_until_idle(relay, steps_max=20_000)
    assert {name: log.events(name) for name in names} == wanted


def test_row_without_partition_keeps_its_key_together() -> None:
    database, log = Database(), Log(partitions={TOPIC: 4})
    for number in range(20):
        database.insert(f"event {number}", key=b"key %d" % (number % 5))
    finish(database, log)
    of_key = {
        number % 5: partition
        for partition in range(4)
        for event in log.events(f"{TOPIC}-partition-{partition}")
        for number in [int(event.split()[1])]
    }
    for key, partition in of_key.items():
        events = [f"event {number}" for number in range(20) if number % 5 == key]
        assert [e for e in log.events(f"{TOPIC}-partition-{partition}") if e in events] == events


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("row-committed-behind-a-higher-number")
@pytest.mark.parametrize("left_out", ["", "number what is committed"])
def test_row_that_is_committed_late_is_sent(left_out: str) -> None:
    database, log = Database(), Log()
    late, database.next_row = database.next_row, 2
    database.insert("early")
    relay = Relay("only", database, log, [left_out])
    relay.connect()
    run_until_idle(relay)
    database.insert("late", row=late)
    relay.feed(TimerFired(relay.core.claim, TimerKind.POLL))
    run_until_idle(relay)
    assert log.events() == (["early"] if left_out else ["early", "late"])


class ComparesNothing(OutboxRelay):
    def _compare(self, state: StreamState, topic_id: str) -> list[RelayEffect]:
        assert state.stream is not None
        return self._go_on(state, state.stream.confirmed, "")


class ComparesNoEvents(OutboxRelay):
    def _log_read(self, event: LogRead) -> list[RelayEffect]:
        state = self.streams[event.topic]
        return self._go_on(state, state.opened_at, str(state.opened_at))


class KnowsNoLimit(OutboxRelay):
    def _opened(self, event: StreamOpened) -> list[RelayEffect]:
        effects = super()._opened(event)
        self.streams[event.topic].value_bytes_max = 2**40
        return effects


BELIEVES = ["a duplicate is believed by its event id only"]


@pytest.mark.hazard("numbers-given-twice-after-a-restore")
@pytest.mark.parametrize("make", [OutboxRelay, ComparesNothing])
def test_restored_database_gives_no_number_twice(make: type[OutboxRelay]) -> None:
    """Also a database of before the first row of a topic."""
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    for backup in (restored(database), Database()):
        changed = restored(backup)
        finish(changed, log) if backup.streams else None
        changed.insert("b" if backup.streams else "c")
        finish(changed, log)
        backup.insert("new row")
        relay = finish(backup, log, BELIEVES if make is ComparesNothing else [], make=make)
        if make is ComparesNothing:
            assert not backup.rows, "the new row was deleted"
            assert "new row" not in log.events(), "and never stored"
        else:
            assert isinstance(relay.error, OutboxRestored)
            assert [row.head.event_id for row in backup.rows.values()] == ["new row"]
            assert "--after-restore" in str(relay.error)
        if not changed.streams:
            break


@pytest.mark.hazard("log-read-before-the-producer-is-opened")
@pytest.mark.parametrize("left_out", ["", "open before reading"])
def test_send_of_the_former_relay_does_not_land_behind_the_comparison(left_out: str) -> None:
    """The former relay works for a database that was replaced meanwhile."""
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    backup = restored(database)
    database.insert("lost in the restore")
    former = Relay("former", database, log)
    database.claim = ""
    former.connect()
    run_until_idle(former, stop=lambda: any(isinstance(effect, SendRows) for effect in former.due))
    (send,) = (effect for effect in former.due if isinstance(effect, SendRows))
    backup.insert("b")
    backup.claim = ""
    relay = Relay("new", backup, log, [left_out])
    relay.connect()
    run_until_idle(relay, stop=lambda: any(isinstance(effect, SendRows) for effect in relay.due))
    former.send(send)
    run_until_idle(relay, steps_max=200)
    if left_out:
        assert isinstance(relay.error, OutboxDiverged | OutboxRestored), "the relay has trusted what it had read"
    else:
        assert relay.error is None
        assert log.events() == ["a", "b"]


@pytest.mark.hazard("row-id-given-anew")
@pytest.mark.parametrize("left_out", [[], ["confirm by number and claim", "writes name the claim"]])
def test_confirmation_of_another_time_deletes_nothing(left_out: list[str]) -> None:
    """The database is restored before the relay deletes what was stored, and gives the row id anew."""
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    backup = restored(database)
    database.insert("b")
    database.claim = ""
    relay = Relay("only", database, log, left_out)
    relay.connect()
    run_until_idle(relay, stop=lambda: any(isinstance(effect, ConfirmRows) for effect in relay.due))
    backup.insert("other")
    relay.database = backup
    while any(isinstance(effect, ConfirmRows) for effect in relay.due):
        relay.step()
    assert [row.head.event_id for row in backup.rows.values()] == ([] if left_out else ["other"])
    if not left_out:
        assert isinstance(finish(backup, log).error, OutboxRestored)


@pytest.mark.hazard("restored-row-sent-again")
@pytest.mark.parametrize("left_out", ["", "recognize rows by event id"])
def test_resume_after_a_restore_sends_no_row_again(left_out: str) -> None:
    """Of rows without a number, with another one, and of rows that the database has lost."""
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    for event_id in ("b", "c"):
        database.insert(event_id)
    backup = restored(database)
    database.insert("d")
    finish(database, log)
    assert log.events() == ["a", "b", "c", "d"]
    backup.insert("e")
    assert isinstance(finish(backup, log).error, OutboxRestored)
    lost = resume(backup, log, Happened.RESTORED, [left_out])
    assert finish(backup, log).error is None
    stored = Counter(log.events())
    assert stored["e"] == 1
    assert (max(stored.values()) > 1) == bool(left_out)
    assert lost == ([] if left_out else ["d"])


@pytest.mark.hazard("duplicate-of-another-row")
@pytest.mark.parametrize("make", [OutboxRelay, ComparesNoEvents])
def test_two_databases_of_one_outbox_lose_no_row(make: type[OutboxRelay]) -> None:
    """Both have given the same number."""
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    other = restored(database)
    for each, event_id in ((database, "of one"), (other, "of the other")):
        each.insert(event_id)
        each.claim = ""
        relay = Relay("numbers", each, log)
        relay.connect()
        run_until_idle(relay, stop=lambda relay=relay: any(isinstance(e, SendRows) for e in relay.due))  # type: ignore[misc]
    assert finish(database, log).error is None
    relay = finish(other, log, BELIEVES if make is ComparesNoEvents else [], make=make)
    if make is ComparesNoEvents:
        assert not other.rows, "the row was deleted"
        assert "of the other" not in log.events()
    else:
        assert isinstance(relay.error, OutboxDiverged)
        assert "of the other" in str(relay.error)
        assert other.rows


def test_number_that_was_stored_by_another_one_leads_to_the_comparison() -> None:
    """Not to a conclusion from the answer."""
    database, log = filled([("orders", "a")]), Log()
    relay = Relay("only", database, log)
    relay.connect()
    run_until_idle(relay, stop=lambda: any(isinstance(effect, SendRows) for effect in relay.due))
    (send,) = (effect for effect in relay.due if isinstance(effect, SendRows))
    relay.send(send)  # and its answer is lost
    run_until_idle(relay)
    assert relay.error is None
    assert log.events() == ["a"]
    assert not database.rows


@pytest.mark.hazard("row-too-large-for-the-log")
@pytest.mark.parametrize("make", [OutboxRelay, KnowsNoLimit])
def test_nothing_waits_behind_a_row_that_can_never_be_sent(make: type[OutboxRelay]) -> None:
    database, log = Database(), Log()
    database.insert("large", size=VALUE_BYTES_MAX + 1)
    database.insert("bad topic", "a b")
    database.insert("behind")
    relay = Relay("only", database, log, make=make)
    relay.connect()
    try:
        run_until_idle(relay, steps_max=300)
    except AssertionError:
        assert make is KnowsNoLimit
    assert log.events() == ([] if make is KnowsNoLimit else ["behind"])
    if make is OutboxRelay:
        reasons = {row.head.event_id: row.refused for row in database.rows.values()}
        assert "limit of the topic is 1000" in reasons["large"]
        assert "character outside" in reasons["bad topic"]


# --- what contradicts the log -----------------------------------------------------------------------------------------


def test_log_that_has_lost_messages_ends_the_relay() -> None:
    database, log = filled([("orders", "a"), ("orders", "b")]), Log()
    finish(database, log)
    del log.topic(TOPIC).messages[1:]
    database.insert("c")
    error = finish(database, log).error
    assert isinstance(error, LogLostMessages)
    assert error.details == {"topic": TOPIC, "first": 1, "last": 1}
    assert f"--log-lost {TOPIC}" in str(error)
    resume(database, log, Happened.LOG_LOST)
    assert finish(database, log).error is None
    assert log.events() == ["a", "c"]


def test_topic_that_was_created_again_ends_the_relay() -> None:
    database, log = filled([("orders", "a")]), Log()
    finish(database, log)
    log.topics.clear()
    log.topic(TOPIC).topic_id = "another"
    database.insert("b")
    error = finish(database, log).error
    assert isinstance(error, TopicRecreated)
    resume(database, log, Happened.OTHER_TOPIC)
    assert finish(database, log).error is None
    assert log.events() == ["b"]


def test_numbered_row_that_was_deleted_by_hand_ends_the_relay() -> None:
    """Its number can never be sent."""
    database, log = filled([("orders", "a"), ("orders", "b")]), Log()
    relay = Relay("only", database, log)
    relay.connect()
    run_until_idle(relay, stop=lambda: any(isinstance(effect, SendRows) for effect in relay.due))
    del database.rows[1]
    error = finish(database, log).error
    assert isinstance(error, OutboxDiverged)
    assert "number 0 is missing" in str(error)


def test_completions_of_a_former_claim_are_dropped() -> None:
    database, log = filled([("orders", "a")]), Log()
    relay = Relay("only", database, log)
    relay.connect()
    run_until_idle(relay)
    claim = relay.core.claim
    relay.connect()
    assert relay.core.handle(Disconnected(claim)) == []
    assert relay.core.claim != claim
