"""A database, a log and relays between them, one step at a time; each rule of the relay can be left out.

The database commits each of its steps as a whole. The log keeps for each topic who may store, and refuses others. What
a relay has sent may arrive after the relay is gone.
"""

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from oncelog.core.errors import EffectsError, MessageTooLarge, ProducerFenced, ServiceUnavailable
from oncelog_effects.core.outbox import events
from oncelog_effects.core.outbox.relay import OutboxRelay
from oncelog_effects.core.outbox.resume import Happened, check_resume, recognized
from oncelog_effects.core.outbox.rows import NumberedRow, RowHead
from oncelog_effects.core.outbox.streams import LogMessage, Stream

VALUE_BYTES_MAX = 1_000
_OF_DATABASE = (
    events.ClaimOutbox,
    events.RenewClaim,
    events.CreateStream,
    events.LookAtRows,
    events.NumberRows,
    events.ConfirmRows,
    events.PruneRows,
)
TOPIC = "public/default/orders"


@dataclass(slots=True)
class Row:
    head: RowHead
    stream: int | None = None
    number: int | None = None
    refused: str = ""


@dataclass(slots=True)
class Database:
    """Also what a backup is."""

    rows: dict[int, Row] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)
    claim: str = ""
    next_row: int = 1
    next_stream: int = 1

    def insert(self, event_id: str, topic: str = "orders", *, row: int | None = None, **columns: Any) -> int:
        """row: an id that was taken from the sequence before."""
        if row is None:
            row, self.next_row = self.next_row, self.next_row + 1
        self.rows[row] = Row(RowHead(row, event_id, topic, columns.get("key"), columns.get("size", 10), None))
        return row

    def numbered(self, stream: Stream) -> tuple[Row, ...]:
        found = (row for row in self.rows.values() if row.stream == stream.number)
        return tuple(sorted(found, key=lambda row: row.number or 0))


@dataclass(slots=True)
class Topic:
    topic_id: str
    holder: object = None
    messages: list[LogMessage] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max((message.number for message in self.messages), default=-1)


@dataclass(slots=True)
class Log:
    topics: dict[str, Topic] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    #: topics and partitions that have no owner
    down: set[str] = field(default_factory=set)

    def topic(self, name: str) -> Topic:
        return self.topics.setdefault(name, Topic(f"id of {name}"))

    def events(self, name: str = TOPIC) -> list[str]:
        return [message.event_id for message in self.topic(name).messages]


class Relay:
    """One process. left_out: names of rules that it does without."""

    def __init__(
        self,
        name: str,
        database: Database,
        log: Log,
        left_out: Sequence[str] = (),
        *,
        make: type[OutboxRelay] = OutboxRelay,
    ) -> None:
        self.name = name
        self.core = make(send_rows_max=2)
        self.database = database
        self.log = log
        self.left_out = left_out
        #: what it has not performed yet, in order
        self.due: list[events.RelayEffect] = []
        self.error: EffectsError | None = None
        self.idle = False
        #: of every tenth call to the log the answer is lost
        self.fails: random.Random | None = None
        #: {stream: the rows that it has sent}, as a relay would remember them by their ids
        self._sent_rows: dict[int, list[int]] = {}
        self._highest_seen = 0
        self._claims = 0

    def connect(self) -> None:
        """A new connection to the database."""
        self._claims += 1
        self.due.clear()
        self.feed(events.Connected(f"{self.name} {self._claims}"))

    def feed(self, event: events.RelayEvent | None) -> None:
        if event is not None:
            self.due += self.core.handle(event)

    def step(self, chance: random.Random | None = None) -> None:
        """Perform one effect, and hand its outcome to the core. Effects of the database are performed in their order,
        and so are those of each topic."""
        firsts: dict[str, int] = {}
        for index, effect in enumerate(self.due):
            firsts.setdefault("" if isinstance(effect, _OF_DATABASE) else getattr(effect, "topic", "timer"), index)
        index = 0 if chance is None else chance.choice(list(firsts.values()))
        self.feed(self.perform(self.due.pop(index)))

    def perform(self, effect: events.RelayEffect) -> events.RelayEvent | None:
        self.idle = False
        match effect:
            case events.StartTimer():
                return self._timer(effect)
            case events.Stop():
                assert isinstance(effect.error, EffectsError)
                self.error = effect.error
                self.due.clear()
                return None
            case events.CloseStreams():
                return None
            case events.OpenStream() | events.ReadLog() | events.SendRows() | events.FindPartitions():
                return self._of_log(effect)
            case _:
                return self._of_database(effect)

    def _timer(self, effect: events.StartTimer) -> events.RelayEvent | None:
        if effect.kind in (events.TimerKind.CLAIM, events.TimerKind.RETRY):
            return events.TimerFired(effect.claim, effect.kind)
        self.idle = effect.kind is events.TimerKind.POLL
        return None

    # --- log ----------------------------------------------------------------------------------------------------------

    def _of_log(
        self, effect: events.OpenStream | events.ReadLog | events.SendRows | events.FindPartitions
    ) -> events.RelayEvent | None:
        event = self._answered(effect)
        if self.fails is None or self.fails.random() > 0.1:
            return event
        if isinstance(effect, events.FindPartitions):
            return events.TopicFailed(effect.claim, effect.topic, ServiceUnavailable())
        return events.StreamFailed(effect.claim, effect.topic, effect.attempt, ServiceUnavailable())

    def _answered(
        self, effect: events.OpenStream | events.ReadLog | events.SendRows | events.FindPartitions
    ) -> events.RelayEvent | None:
        topic = self.log.topic(effect.topic)
        match effect:
            case events.FindPartitions():
                return events.PartitionsFound(effect.claim, effect.topic, self.log.partitions.get(effect.topic, 0))
            case events.OpenStream() if effect.topic in self.log.down:
                return events.StreamFailed(effect.claim, effect.topic, effect.attempt, ServiceUnavailable())
            case events.OpenStream():
                last = topic.last
                if "open before reading" not in self.left_out:
                    topic.holder = (self, effect.claim, effect.attempt)
                return events.StreamOpened(
                    effect.claim, effect.topic, effect.attempt, topic.topic_id, last, VALUE_BYTES_MAX
                )
            case events.ReadLog():
                found = [message for message in topic.messages if message.number <= effect.last]
                behind = int(effect.after) if effect.after else -1
                return events.LogRead(
                    effect.claim, effect.topic, effect.attempt, tuple(each for each in found if each.number > behind)
                )
            case events.SendRows():
                return self.send(effect)

    def send(self, effect: events.SendRows) -> events.RelayEvent | None:
        """None: the connection to the database is of no use."""
        return self.arrive(effect, self.load(effect))

    def load(self, effect: events.SendRows) -> list[Row]:
        rows = [row for row in self.database.numbered(self.database.streams[effect.stream])
                if row.number is not None and effect.first <= row.number <= effect.last]  # fmt: skip
        self._sent_rows.setdefault(effect.stream, []).extend(row.head.id for row in rows)
        return rows

    def arrive(self, effect: events.SendRows, rows: Sequence[Row]) -> events.RelayEvent:
        """At the log, perhaps late."""
        topic = self.log.topic(effect.topic)
        if "open before reading" in self.left_out:
            topic.holder = (self, effect.claim, effect.attempt)  # opened only now
        if topic.holder != (self, effect.claim, effect.attempt):
            return events.StreamFailed(effect.claim, effect.topic, effect.attempt, ProducerFenced(), fenced=True)
        foreign = False
        if any(row.head.size_bytes > VALUE_BYTES_MAX for row in rows):
            return events.StreamFailed(effect.claim, effect.topic, effect.attempt, MessageTooLarge())
        for message in (LogMessage(row.number or 0, row.head.event_id, str(row.number)) for row in rows):
            if message.number <= topic.last:
                foreign = True
            else:
                assert message.number == topic.last + 1, "a contiguous producer leaves no gap"
                topic.messages.append(message)
        if "a duplicate is believed by its event id only" in self.left_out:
            foreign = False
        return events.RowsSent(effect.claim, effect.topic, effect.attempt, effect.last, str(effect.last), foreign)

    # --- database -----------------------------------------------------------------------------------------------------

    def _of_database(self, effect: Any) -> events.RelayEvent | None:
        database = self.database
        if isinstance(effect, events.ClaimOutbox):
            if database.claim not in ("", effect.claim):
                return events.ClaimRefused(effect.claim)
            database.claim = effect.claim
            streams = tuple(database.streams.values())
            numbered = {
                each.number: tuple(
                    NumberedRow(row.number, row.head.event_id, row.head.size_bytes)
                    for row in database.numbered(each)
                    if row.number is not None and row.number > each.confirmed
                )
                for each in streams
            }
            return events.OutboxClaimed(effect.claim, streams, numbered)
        if isinstance(effect, events.LookAtRows):
            return events.RowsSeen(effect.claim, self._waiting(effect))
        if database.claim != effect.claim and "writes name the claim" not in self.left_out:
            self.due.clear()
            return events.Disconnected(effect.claim)
        return self._write(effect)

    def _waiting(self, effect: events.LookAtRows) -> tuple[RowHead, ...]:
        rows = [row for row in self.database.rows.values() if row.number is None and not row.refused]
        rows = [row for row in rows if row.head.topic not in effect.except_topics]
        if "number what is committed" in self.left_out:
            rows = [row for row in rows if row.head.id > self._highest_seen]
        return tuple(sorted(row.head for row in rows))[: effect.count]

    def _write(self, effect: Any) -> events.RelayEvent | None:
        database = self.database
        match effect:
            case events.RenewClaim():
                return events.ClaimRenewed(effect.claim)
            case events.PruneRows():
                return events.RowsPruned(effect.claim, 0)
            case events.CreateStream():
                stream = Stream(database.next_stream, effect.topic, effect.topic_id)
                database.next_stream += 1
                database.streams[stream.number] = stream
                return events.StreamCreated(effect.claim, stream)
            case events.NumberRows():
                if any(assigned.row not in database.rows for assigned in effect.assigned):
                    return events.RowsNumbered(effect.claim, False)
                for row, reason in effect.refused:
                    database.rows[row].refused = reason
                for row, key, number in effect.assigned:
                    stream = database.streams[key]
                    assert number == stream.next_number, "numbers have no gaps"
                    database.rows[row].stream, database.rows[row].number = key, number
                    self._highest_seen = max(self._highest_seen, row)
                    database.streams[key] = stream._replace(next_number=number + 1)
                return events.RowsNumbered(effect.claim, True)
            case events.ConfirmRows():
                self._confirm(effect)
                return events.RowsConfirmed(effect.claim, effect.topic)
        raise AssertionError(effect)

    def _confirm(self, effect: events.ConfirmRows) -> None:
        database = self.database
        stored = [row.head.id for row in database.numbered(database.streams[effect.stream])
                  if row.number is not None and row.number <= effect.up_to]  # fmt: skip
        if "confirm by number and claim" in self.left_out:
            stored = self._sent_rows.get(effect.stream, [])
        for row in stored:
            database.rows.pop(row, None)
        stream = database.streams[effect.stream]
        database.streams[effect.stream] = stream._replace(confirmed=effect.up_to, confirmed_message=effect.message_id)


def run_until_idle(relay: Relay, *, steps_max: int = 5_000, stop: Callable[[], bool] = lambda: False) -> None:
    """Until it only waits for rows, has ended, or `stop`."""
    for _ in range(steps_max):
        if stop() or not relay.due:
            return
        relay.step()
    raise AssertionError("it does not come to an end")


def finish(database: Database, log: Log, left_out: Sequence[str] = (), **settings: Any) -> Relay:
    """A relay that finds the claim free and works until nothing is left."""
    database.claim = ""
    relay = Relay("last", database, log, left_out, **settings)
    relay.connect()
    run_until_idle(relay)
    return relay


def restored(backup: Database) -> Database:
    return deepcopy(backup)


def resume(database: Database, log: Log, happened: Happened, left_out: Sequence[str] = ()) -> list[str]:
    """Returns the event ids that the database has lost."""
    lost: list[str] = []
    for stream in list(database.streams.values()):
        topic = log.topic(stream.topic)
        topic.holder = None
        last = topic.last
        if happened is not Happened.OTHER_TOPIC:
            check_resume(stream, happened, last)
        found = [message for message in topic.messages if message.number > stream.confirmed]
        for row in database.rows.values():
            if row.stream == stream.number and (row.number or 0) > min(last, stream.confirmed):
                row.stream = row.number = None
        if happened is Happened.OTHER_TOPIC:
            del database.streams[stream.number]
            continue
        if happened is Happened.RESTORED and "recognize rows by event id" not in left_out:
            rows = {row.head.event_id: key for key, row in database.rows.items()}
            known = recognized(found, rows)
            for stored in known.stored:
                del database.rows[stored.row]
            lost += known.lost
        database.streams[stream.number] = replace_end(stream, last)
    return lost


def replace_end(stream: Stream, last: int) -> Stream:
    return stream._replace(next_number=last + 1, confirmed=last, confirmed_message=str(last) if last >= 0 else "")
