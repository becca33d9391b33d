"""Messages that administrators delete, whether or not they are acknowledged: all of a topic, or whole ledgers of it.

    all      --roll--> a new ledger is open, the target is its first message --every subscription skips to it-->
             --ledgers below it leave the topic record--> answered
    below    the target is the end of the last ledger that has only messages below an index; if no message at or above
             the index is stored, the open ledger is rolled first   --the same--> answered with the first index

Rules
- A truncation of all messages goes on when its requests were answered without it; a trim below an index ends with its
  request. Both may be asked for again.
- A trim below an index never deletes a message at or above it, also if messages are stored meanwhile.
"""

from dataclasses import dataclass, field
from typing import Protocol

from oncelog.core.chain.ownership import Ownership
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.publishing.log import TopicLog
from oncelog.core.retention.ledger_sizes import LedgerSizes
from oncelog.core.topic_events.effects import AnswerTruncate, Step
from oncelog.core.topic_events.events import TrimBelowRequested, TrimRequested, TruncateRequested

#: A request that is not complete after this time is answered.
TRUNCATE_WAIT_MS = 20_000


class Trims(Protocol):
    """What trims the log."""

    @property
    def trimming(self) -> bool:
        """Whether a trim is in flight."""

    def all_known(self) -> bool:
        """Whether the ends of all ledgers are known; otherwise they are read."""

    def trim(self, event: TrimRequested) -> None: ...

    def rebase(self) -> None:
        """Write another base, which may move the trim bound."""


@dataclass(slots=True)
class _Truncation:
    """calls: {call: until when its answer may wait}. below: the target, once the ledger has rolled."""

    calls: dict[int, int] = field(default_factory=dict)
    below: int | None = None


@dataclass(frozen=True, slots=True)
class _TrimBelow:
    below: int
    until_ms: int


class Truncations:
    """Of one topic."""

    def __init__(
        self,
        step: Step,
        ownership: Ownership,
        log: TopicLog,
        subscriptions: Subscriptions,
        ledgers: LedgerSizes,
        trims: Trims,
    ) -> None:
        self._step = step
        self._ownership = ownership
        self._log = log
        self._subscriptions = subscriptions
        self._ledgers = ledgers
        self._trims = trims
        self._all: _Truncation | None = None
        #: {call: what it has asked for}
        self._below: dict[int, _TrimBelow] = {}

    @property
    def idle(self) -> bool:
        return self._all is None and not self._below

    def opened(self) -> None:
        """The log's next ledger is open; nothing is appended to it yet."""
        if self._all is not None and self._all.below is None:
            self._all.below = self._log.next_index

    def tick(self) -> None:
        if self._all is not None:
            self._truncate(self._all)
        for call, wanted in list(self._below.items()):
            self._trim_below(call, wanted)

    def end(self, error: OncelogError) -> None:
        """The topic is not served here any more."""
        calls = [*(self._all.calls if self._all is not None else ()), *self._below]
        self._all = None
        self._below.clear()
        for call in calls:
            self._step.emit(AnswerTruncate(call, 0, error))

    # --- all ----------------------------------------------------------------------------------------------------------

    def truncate(self, event: TruncateRequested) -> None:
        """Delete all messages up to the present end."""
        if self._all is None:
            self._all = _Truncation()
        self._all.calls[event.call] = self._step.now_ms + TRUNCATE_WAIT_MS
        self._truncate(self._all)

    def _truncate(self, truncation: _Truncation) -> None:
        """One step further, as far as possible."""
        first = self._ownership.record.first
        if truncation.below is None and self._rolled():
            truncation.below = self._log.next_index
        below = truncation.below
        if below is not None:
            self._subscriptions.skip_below(below)
            if first is not None and first.base_index >= below:
                self._all = None
                for call in truncation.calls:
                    self._step.emit(AnswerTruncate(call, below))
                return
            if self._trims.all_known():
                link = next(link for link in self._ownership.record.ledgers if link.base_index >= below)
                self._trim_before(link.ledger_id)
        for call, until_ms in list(truncation.calls.items()):
            if self._step.now_ms >= until_ms:
                del truncation.calls[call]
                error = ServiceUnavailable("the truncation is not complete yet and goes on: ask again")
                self._step.emit(AnswerTruncate(call, 0, error))

    def _rolled(self) -> bool:
        """Whether the open ledger has no entries; otherwise it is rolled, if there is one."""
        writer = self._log.ledgers.writer
        if not self._log.open or writer is None:
            return False
        if writer.next_entry:
            self._log.ledgers.roll()
        return writer.next_entry == 0

    # --- below an index -----------------------------------------------------------------------------------------------

    def trim_below(self, event: TrimBelowRequested) -> None:
        """Delete the ledgers that have only messages below an index."""
        end = self._log.table.state.next_index
        below = end if event.below is None else event.below
        if below > end:
            message = f"before_index is {below}, and the topic ends at {end}: give an index up to its end"
            error = InvalidArgument(message, field="before_index", limit=end)
            self._step.emit(AnswerTruncate(event.call, 0, error))
            return
        self._below[event.call] = wanted = _TrimBelow(below, self._step.now_ms + TRUNCATE_WAIT_MS)
        self._trim_below(event.call, wanted)

    def _trim_below(self, call: int, wanted: _TrimBelow) -> None:
        """One step further. A page of ledgers goes as a whole, or is read once it is the first one, and then in parts:
        so where the trim ends is known when there is nothing left to trim."""
        first = self._ownership.record.first
        if first is not None and first.base_index >= wanted.below:
            self._answer_trim(call, first.base_index)
            return
        all_stored_are_below = wanted.below >= self._log.next_index
        if (not all_stored_are_below or self._rolled()) and self._trims.all_known():
            ends = [each for each in self._ledgers.boundaries() if each[1] <= wanted.below]
            if not ends:
                self._answer_trim(call, 0 if first is None else first.base_index)
                return
            ledger_id, end_index = ends[-1]
            self._subscriptions.skip_below(end_index)
            self._trim_before(LedgerId(ledger_id + 1))
        if self._step.now_ms >= wanted.until_ms:
            self._answer_trim(call, 0, ServiceUnavailable("the trim is not complete yet: ask again"))

    def _answer_trim(self, call: int, first_index: int, error: OncelogError | None = None) -> None:
        del self._below[call]
        self._step.emit(AnswerTruncate(call, first_index, error))

    def _trim_before(self, ledger_id: LedgerId) -> None:
        """Trim the ledgers before this one; write a base where only the snapshots hold them back."""
        self._trims.trim(TrimRequested(Position(ledger_id, EntryId(0))))
        if not self._trims.trimming:
            self._trims.rebase()
