"""A task's half of mode=position: it stores a claim of rows in their name's journal, and then publishes them.

    open ──> the last record is of this batch, or this batch may follow it ──> claim ──> publish ──> claim … ──> end
    claim ──┬── the next ids of an earlier attempt's claims ──> publish them, routed as they were then
            ├── all of those have come again ──> store a new claim ──> publish
            └── an earlier attempt claimed other ids ──> refuse
    Fenced by a newer attempt, or the outcome of a step is unknown: refuse. The task fails, and Spark tries it again.

Rules
- The sequence id of a row is its position in the source, so the log itself refuses each row of a replay. But the log
  keeps the last id of a name, not a set of ids. Where two tasks share the rows of one name (a repartition, several
  ranges of one source partition), the later ids may be stored first, and the earlier ones would be taken for
  duplicates. So of one batch only the rows of one task are published under one name: those in the task's claims.
- Where rows go to several destinations, partitions or topics, one claim covers them all. It keeps the numbers of
  partitions by which they are routed: a replay routes them the same way, even when a topic has more partitions since.
- The log may take rows for old ones without knowing whether it has them. The writer proves by reading that they are
  stored (`position_proof`). A claim names the position in the target from which to read.
- A claim is stored before its rows are published. So whatever the target has of a batch is in its claims. A task that
  has the claimed ids, one for one, and further ones behind them, leaves nothing out. Any other task of the batch, and a
  replay that is cut in another way, is refused with an error, before anything of its own is published.
- Opening fences: a task that is fenced has been followed by a newer attempt, and ends. It never opens again by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from oncelog.core.errors import Conflict, OncelogError
from oncelog_spark.sink.journal_records import ClaimedIds, ClaimRecord, RangeBatch
from oncelog_spark.sink.run_order import INTERRUPTIONS, BatchOrder, former_after, order_after


class JournalTail(NamedTuple):
    """number: of the last record, -1: none. claims: those of the last record's batch, in order. start: the message id
    of the first of them, in hex; empty: there is none."""

    number: int
    claims: tuple[ClaimRecord, ...]
    start: str


class ClaimLog(Protocol):
    """The journal and the target of one producer name. All methods raise OncelogError."""

    def open_journal(self) -> JournalTail:
        """Fence older attempts at the journal, and read its end."""

    def open_target(self) -> int:
        """Fence older attempts at the target. Returns the last sequence id there; -1: none, or the rows have several
        destinations, which are opened when a row for them comes."""

    def append_claim(self, number: int, record: ClaimRecord) -> str:
        """Store the claim durably. Returns its message id, in hex."""


class PositionClaims:
    """The claims of one producer name in one task. continues: a new run may follow another one.

    All methods raise Conflict for a newer attempt or an unknown outcome, and any other error of `log`.
    """

    def __init__(self, log: ClaimLog, producer_name: str, batch: RangeBatch, *, continues: bool) -> None:
        self.producer_name = producer_name
        self.batch = batch
        self._log = log
        self._continues = continues
        #: of the journal's last record
        self._number = -1
        #: of earlier attempts of this batch, without those whose rows have come again
        self._claims: tuple[ClaimRecord, ...] = ()
        #: message id of this batch's first claim, in hex; empty: there is none yet
        self._start = ""
        self._former: tuple[str, ...] = ()

    def open(self) -> None:
        """Fence older attempts; to be called first. Raises Conflict, LogHole where this batch may not follow."""
        with interruptions_refused(self.producer_name):
            self._number, self._claims, self._start = self._log.open_journal()
            last_id = self._log.open_target()
        last = self._claims[-1] if self._claims else None
        order = order_after(last, self.batch, last_id=last_id, continues=self._continues)
        self._former = former_after(last, self.batch)
        if order is BatchOrder.NEXT:
            self._claims, self._start = (), ""

    @property
    def rows_expected(self) -> int | None:
        """How many rows the next claim must have, since an earlier attempt claimed so many; None: any number."""
        return self._claims[0].ids.count if self._claims else None

    def claim(self, ids: Sequence[int], routes: Mapping[str, int], positions: Mapping[str, str]) -> Mapping[str, int]:
        """Store a claim of the next rows, unless an earlier attempt stored it. Returns the routes to publish them by.

        ids: ascending; `rows_expected` of them, or the last ones. routes, positions: see ClaimRecord; those of an
        earlier attempt's claim count instead. Raises Conflict where an earlier attempt claimed other rows.
        """
        mine = ClaimedIds.of(ids)
        if self._claims:
            claimed, self._claims = self._claims[0], self._claims[1:]
            if claimed.ids != mine:
                raise self._shared(claimed.ids, str(mine))
            return claimed.routes
        record = ClaimRecord(self.batch, mine, self._start, self._former, routes, positions)
        with interruptions_refused(self.producer_name):
            message_id = self._log.append_claim(self._number + 1, record)
        self._number += 1
        self._start = self._start or message_id
        return routes

    def end(self) -> None:
        """The task has no further rows. Raises Conflict where an earlier attempt claimed more."""
        if self._claims:
            raise self._shared(self._claims[0].ids, "no more")

    def _shared(self, claimed: ClaimedIds, mine: str) -> OncelogError:
        return Conflict(
            f"another task of {self.batch} has, or had, other rows of {self.producer_name}: {claimed} there, {mine} "
            "here. In mode=position all rows of a producer must be in one task of a batch, in order: no repartition or "
            "shuffle between source and sink, and a source that reads each partition in one task. Correct this and use "
            "another producerPrefix, or use mode=batch"
        )


@contextmanager
def interruptions_refused(producer_name: str) -> Iterator[None]:
    """Raises Conflict instead of one of INTERRUPTIONS."""
    try:
        yield
    except INTERRUPTIONS as error:
        raise Conflict(
            f"{producer_name}: a newer attempt of this task has begun, or the log did not answer: {error}"
        ) from error
