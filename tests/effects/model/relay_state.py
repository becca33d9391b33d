"""The state of the model of the outbox relay: databases, one stream of the log, relays, an operator, what is under way.

What a state leaves out, and why nothing is lost by that
- The creation of a stream, and partitions. A stream is there from the start; each is on its own.
- Time. A lease may run out at any time, so each relay may be slow at each of its steps, and the zombie of another one.
- Deaths. A process that takes no further step is dead; what it has sent stays under way.
- Refused rows, retention, and losses of the log: nothing that follows depends on an order.
- Claims and openings are small numbers; a fresh one is the lowest that nobody knows. 0: none.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog_effects.core.outbox.rows import NumberedRow
from oncelog_effects.core.outbox.streams import LogMessage, Stream
from tests.model.state import _Named

NOBODY = -1
_TOPIC, _TOPIC_ID = "public/default/orders", "5a" * 16


class Phase(_Named):
    """Of a relay, as in `core.outbox.relay`; of an operator's `relay resume`, as in `outbox.resuming`."""

    OFF = 0
    CLAIMED = 1
    #: the producer is open, and the log has more than is confirmed
    READING = 2
    READY = 3
    #: its producer is fenced, or what it has found contradicts the log: it renews its claim before it concludes
    FENCED = 4
    CONTRADICTED = 5
    #: it has ended with an error that an operator has to see
    STOPPED = 6
    #: of an operator: the rows have lost their numbers; those that the log has are settled
    FORGOTTEN = 7
    SETTLED = 8


class Row(NamedTuple):
    """number: NOBODY: none yet."""

    id: int
    event: int
    number: int = NOBODY


class Database(NamedTuple):
    """rows: by id. incarnation: counts restores, which break all connections. committed: the events of all its
    transactions, one bit each. highest: the highest id that was given a number; used by a variant only."""

    rows: tuple[Row, ...] = ()
    next_id: int = 0
    next_number: int = 0
    confirmed: int = NOBODY
    claim: int = 0
    incarnation: int = 0
    committed: int = 0
    highest: int = NOBODY

    def waiting(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.number == NOBODY)

    def numbered(self, first: int, last: int) -> tuple[Row, ...]:
        return tuple(sorted((row for row in self.rows if first <= row.number <= last), key=lambda row: row.number))


class Insert(NamedTuple):
    """A transaction of the application that has taken an id."""

    database: int
    id: int
    event: int


class Fate(_Named):
    UNDER_WAY = 0
    STORED = 1
    #: a number was stored before
    FOREIGN = 2
    #: refused: the producer is fenced, or there would be a gap
    FENCED = 3


class Send(NamedTuple):
    """opening: of the producer. events: under the numbers from `first` on."""

    opening: int
    first: int
    events: tuple[int, ...]
    fate: Fate = Fate.UNDER_WAY

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


class Relay(NamedTuple):
    """numbered: (number, event) above confirmed. looked: (id, event) that it has seen without number. opened_at: the
    end of the log as of the opening. read: the log as a variant has read it before it opens. ids: (number, id)
    above confirmed; used by a variant only."""

    database: int = 0
    phase: Phase = Phase.OFF
    claim: int = 0
    incarnation: int = 0
    next_number: int = 0
    confirmed: int = NOBODY
    numbered: tuple[tuple[int, int], ...] = ()
    looked: tuple[tuple[int, int], ...] = ()
    opening: int = 0
    opened_at: int = NOBODY
    sent: int = NOBODY
    stored: int = NOBODY
    read: tuple[int, ...] | None = None
    ids: tuple[tuple[int, int], ...] = ()

    @property
    def stream(self) -> Stream:
        return stream_of(self.next_number, self.confirmed)

    def heads(self) -> list[NumberedRow]:
        return [NumberedRow(number, str(event), 1) for number, event in self.numbered if number > self.confirmed]


class Operator(NamedTuple):
    """last: the end of the log as of the opening. found: (number, event) behind `confirmed`."""

    phase: Phase = Phase.OFF
    database: int = 0
    claim: int = 0
    last: int = NOBODY
    found: tuple[tuple[int, int], ...] = ()


class Budget(NamedTuple):
    """How often something may still happen."""

    inserts: int = 2
    claims: int = 2
    lost_answers: int = 0
    backups: int = 0
    restores: int = 0
    splits: int = 0
    resumes: int = 0


class State(NamedTuple):
    """log: the event under each number. holder: the opening whose producer may store. before: of each event, those
    that were committed in its database when its transaction began, one bit each. disturbed: the database was restored,
    or there are two: only then may a relay stop with an error."""

    budget: Budget
    databases: tuple[Database, ...] = (Database(),)
    relays: tuple[Relay, ...] = (Relay(), Relay())
    log: tuple[int, ...] = ()
    holder: int = 0
    inserts: tuple[Insert, ...] = ()
    sends: tuple[Send, ...] = ()
    before: tuple[int, ...] = ()
    backup: Database | None = None
    operator: Operator = Operator()
    disturbed: bool = False

    def fresh_claim(self) -> int:
        used = {each.claim for each in self.relays} | {each.claim for each in self.databases} | {self.operator.claim}
        return _fresh(used if self.backup is None else used | {self.backup.claim})

    def fresh_opening(self) -> int:
        return _fresh({self.holder} | {each.opening for each in self.relays} | {each.opening for each in self.sends})


def _fresh(used: set[int]) -> int:
    return next(number for number in range(1, len(used) + 2) if number not in used)


def stream_of(next_number: int, confirmed: int) -> Stream:
    return Stream(1, _TOPIC, _TOPIC_ID, next_number, confirmed)


def messages_of(found: tuple[tuple[int, int], ...]) -> list[LogMessage]:
    return [LogMessage(number, str(event), str(number)) for number, event in found]


TOPIC_ID = _TOPIC_ID


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of `core.outbox`; a variant lacks some."""

    #: every committed row without a number gets one, whatever its id
    numbers_what_is_committed: bool = True
    #: a row is sent under a number that is committed
    numbers_before_sending: bool = True
    #: the producer is opened before the end of the log is read
    opens_before_reading: bool = True
    #: each opening compares the log with the numbers of the outbox; each connection begins at the claim
    compares_each_opening: bool = True
    claims_each_connection: bool = True
    #: an answer that a number was stored before is not believed: the stream is opened and compared again
    duplicates_by_event_id: bool = True
    #: what is stored is deleted by its number, not by the id of the row that was sent
    confirms_by_number: bool = True
    #: a write names its claim
    writes_name_claim: bool = True
    #: a contradiction ends a relay only if its claim is still its own
    contradiction_needs_claim: bool = True
    #: after a restore, what the log has is recognized by its event id
    resume_recognizes_events: bool = True
    #: a resume gives the stream its new end last
    resume_ends_last: bool = True
