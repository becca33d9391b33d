"""A task's half of mode position: before it publishes rows under a name, it says in the name's journal which ones.

    Begin ──> OPENING_JOURNAL ──> OPENING_TARGET ──┬── this batch's turn ──> READY ──── RowsEnded ──> Finish
                                                   └── not its turn ──> Refuse
    READY ── RowsGiven ──┬── these ids were claimed ───────────────> PUBLISHING ──> READY
                         ├── they are next ──> APPENDING, stored ──> PUBLISHING ──> READY
                         └── others were claimed ──> Refuse
    any step: Interrupted ──> Refuse; the task fails, and Spark tries it again

Rules
- The sequence id of a row is its position in the source, so a replay is refused row by row by the log. But the log
  keeps a mark, not a set: where two tasks share the rows of one name (a repartition, several ranges of one topic part),
  the later ids may be stored first, and the earlier ones would be taken for duplicates. So of one batch only the rows
  of one task are published under one name: those that its claims say.
- Where rows go to several destinations, parts or topics, one claim covers them all, and says by which numbers of parts
  they are routed: a replay routes them the same way, also when a topic got further parts since.
- The log may take rows for old ones without knowing whether it has them. The shell proves that they are stored, by
  reading (`position_proof`), before it says Published. A claim names the place in the target from which to read.
- A claim is stored before its rows are published. So what is in the target of a batch is in its claims, and a task that
  has the claimed ids, one for one, and further ones behind them, leaves nothing out. Any other task of the batch, and a
  replay that is cut otherwise, is refused, loudly, before anything of its own is published.
- Opening fences: a task that is fenced has been followed by a newer attempt, and ends. It never opens again by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from oncelog.core.errors import Conflict, InvariantViolated, OncelogError
from oncelog.pipeline.sink.journal_records import ClaimRecord, IdPiece, RunBatch
from oncelog.pipeline.sink.run_order import Turn, former_after, turn_after

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class JournalOpened:
    """The answer to OpenJournal: older attempts are fenced there.

    number: of the last record, -1: none. claims: those of the last record's batch, in order. start: the message id of
    the first of them, in hex.
    """

    number: int
    claims: tuple[ClaimRecord, ...]
    start: str


@dataclass(frozen=True, slots=True)
class TargetOpened:
    """The answer to OpenTarget: older attempts are fenced there. mark: the last sequence id stored, -1: none, or there
    are several destinations, which are opened as rows for them come."""

    mark: int


@dataclass(frozen=True, slots=True)
class RowsGiven:
    """The next rows of the task under this name, as many as were asked for, or its last ones. Their ids ascend.

    routes, places: see ClaimRecord; they count if the rows were not claimed before.
    """

    ids: Sequence[int]
    routes: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimAppended:
    """The answer to AppendClaim: it is stored, under this message id, in hex."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to Publish: the log has all of them."""


@dataclass(frozen=True, slots=True)
class RowsEnded:
    """The task has no further rows under this name."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The other answer to any effect: a newer attempt has fenced this one, or the outcome is unknown."""

    reason: OncelogError


Event = Begin | JournalOpened | TargetOpened | RowsGiven | ClaimAppended | Published | RowsEnded | Interrupted


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """JournalOpened or Interrupted."""


@dataclass(frozen=True, slots=True)
class OpenTarget:
    """TargetOpened or Interrupted."""


@dataclass(frozen=True, slots=True)
class TakeRows:
    """RowsGiven or RowsEnded. count: as many rows as an earlier attempt claimed at once; None: as it suits."""

    count: int | None


@dataclass(frozen=True, slots=True)
class AppendClaim:
    """ClaimAppended or Interrupted."""

    number: int
    record: ClaimRecord


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the rows given last, routed by these numbers of parts: Published or Interrupted."""

    routes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end: everything is published."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The end: nothing further of this task may be published under this name."""

    error: OncelogError


Effect = OpenJournal | OpenTarget | TakeRows | AppendClaim | Publish | Finish | Refuse


class State(Enum):
    NEW = "new"
    OPENING_JOURNAL = "opening the journal"
    OPENING_TARGET = "opening the target"
    READY = "ready"
    APPENDING = "storing a claim"
    PUBLISHING = "publishing"
    OVER = "over"


class PositionClaims:
    """One name in one task. Each list of effects has one effect, which is answered by one event.

    continues: a new run may follow another one.
    """

    def __init__(self, producer_name: str, batch: RunBatch, *, continues: bool) -> None:
        self.producer_name = producer_name
        self.batch = batch
        self.state = State.NEW
        self._continues = continues
        self._number = -1
        #: of the last record's batch; from READY on, of this batch and not met again yet
        self._claims: tuple[ClaimRecord, ...] = ()
        self._start = ""
        self._former: tuple[str, ...] = ()
        #: of the claim that is published next
        self._routes: Mapping[str, int] = {}

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Begin():
                self._expect(State.NEW)
                self.state = State.OPENING_JOURNAL
                return [OpenJournal()]
            case JournalOpened():
                self._expect(State.OPENING_JOURNAL)
                self._number, self._claims, self._start = event.number, event.claims, event.start
                self.state = State.OPENING_TARGET
                return [OpenTarget()]
            case TargetOpened():
                self._expect(State.OPENING_TARGET)
                return self._judge(event.mark)
            case RowsGiven():
                self._expect(State.READY)
                return self._given(event)
            case ClaimAppended():
                self._expect(State.APPENDING)
                self._start = self._start or event.message_id
                return self._publish()
            case Published():
                self._expect(State.PUBLISHING)
                return self._take()
            case RowsEnded():
                self._expect(State.READY)
                return [self._end(Refuse(self._shared(self._claims[0].ids, "no more")) if self._claims else Finish())]
            case Interrupted():
                return [self._end(Refuse(self._interrupted(event.reason)))]
            case _:
                assert_never(event)

    def _judge(self, mark: int) -> list[Effect]:
        last = self._claims[-1] if self._claims else None
        turn = turn_after(last, self.batch, mark=mark, continues=self._continues)
        if isinstance(turn, OncelogError):
            return [self._end(Refuse(turn))]
        self._former = former_after(last, self.batch)
        if turn is Turn.NEXT:
            self._claims, self._start = (), ""
        return self._take()

    def _take(self) -> list[Effect]:
        self.state = State.READY
        return [TakeRows(self._claims[0].ids.count if self._claims else None)]

    def _given(self, event: RowsGiven) -> list[Effect]:
        mine = IdPiece.of(event.ids)
        if self._claims:
            claimed, self._claims = self._claims[0], self._claims[1:]
            if claimed.ids != mine:
                return [self._end(Refuse(self._shared(claimed.ids, str(mine))))]
            self._routes = claimed.routes
            return self._publish()
        self.state, self._number, self._routes = State.APPENDING, self._number + 1, event.routes
        record = ClaimRecord(self.batch, mine, self._start, self._former, event.routes, event.places)
        return [AppendClaim(self._number, record)]

    def _publish(self) -> list[Effect]:
        self.state = State.PUBLISHING
        return [Publish(self._routes)]

    def _end(self, effect: Effect) -> Effect:
        self.state = State.OVER
        return effect

    def _shared(self, claimed: IdPiece, mine: str) -> OncelogError:
        return Conflict(
            f"{self.batch} has other rows of {self.producer_name} in another task, or had before: there {claimed}, "
            f"here {mine}. In mode=position all rows of a producer are in one task of a batch, in order: no "
            "repartition or shuffle between source and sink, and a source that reads each topic part in one task. "
            "Correct that and begin under another producerPrefix, or use mode=batch"
        )

    def _interrupted(self, reason: OncelogError) -> OncelogError:
        return Conflict(f"{self.producer_name}: another attempt came between, or the log did not answer: {reason}")

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise InvariantViolated(f"an answer for {state.value} came while {self.state.value}")
