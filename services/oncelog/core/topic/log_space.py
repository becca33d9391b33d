"""What each ledger of a topic's log holds: messages, bytes, and append times.

The owner counts what it appends itself. About the ledgers of former owners it knows only where they begin, until
somebody asks: then their records and their last entries are read, once (`unknown`, `ends_read`). The bytes of such a
ledger include its few grants.

Marks are (end index, append time) of messages at some distance from each other. They say how old messages are within a
ledger. Only the newest are kept; of older ledgers their ends are known.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId, Position
from oncelog.core.subscriptions.retention import LedgerSpan
from oncelog.core.topic.events import EndOfLedger
from oncelog.core.topic.log import InFlight

#: Marks that are kept, and their distance while no policy asks for ages.
MARKS_MAX = 256
MARK_MS = 10_000
#: The distance of marks under a limit of age: this part of it, and not less than the other.
MARKS_PER_AGE = 200
MARK_MS_MIN = 1_000


class LogSpace:
    """The ledgers of the log, oldest first, the open one last."""

    def __init__(self, links: Sequence[LedgerLink], next_index: int) -> None:
        """links: of the topic record, all CLOSED. next_index: where they end."""
        #: {former owners' ledger whose end is not read yet: (first index, end index)}
        self._unread: dict[LedgerId, tuple[int, int]] = {}
        self._spans: dict[LedgerId, LedgerSpan] = {}
        self._ends: dict[LedgerId, EntryId] = {}
        self._marks: deque[tuple[int, int]] = deque(maxlen=MARKS_MAX)
        #: of the newest mark
        self._marked_ms = 0
        self._mark_ms = MARK_MS
        #: grows with everything that can change a decision
        self.changes = 0
        ends = [*(link.base_index for link in links), next_index][1:]
        for link, end_index in zip(links, ends, strict=True):
            self._unread[link.ledger_id] = (link.base_index, end_index)

    # --- what the owner appends ---------------------------------------------------------------------------------------

    def opened(self, ledger_id: LedgerId, first_index: int) -> None:
        """A ledger is open for entries; the one before it is CLOSED."""
        for other, span in self._spans.items():
            if not span.closed:
                self._spans[other] = replace(span, closed=True)
        self._spans[ledger_id] = LedgerSpan(ledger_id, first_index, first_index, 0, 0, 0, closed=False)
        self._ends[ledger_id] = NO_ENTRY
        self.changes += 1

    def appended(self, ledger_id: LedgerId, entries: Sequence[InFlight]) -> None:
        """Entries of the open ledger are durable."""
        span, last = self._spans.get(ledger_id), entries[-1].header
        if span is None:
            return
        self._ends[ledger_id] = last.entry_id
        count = sum(entry.header.body_bytes for entry in entries if entry.batch is not None)
        self._spans[ledger_id] = LedgerSpan(
            ledger_id,
            span.first_index,
            last.next_index,
            span.message_bytes + count,
            span.began_ms or entries[0].header.append_time_ms,
            max(span.ended_ms, last.append_time_ms),
            closed=False,
        )
        self.changes += 1
        if last.append_time_ms - self._marked_ms >= self._mark_ms:
            # What was appended before a pause is not as young as what comes behind it.
            if span.end_index > span.first_index:
                self._marks.append((span.end_index, span.ended_ms))
            self._marked_ms = last.append_time_ms
            self._marks.append((last.next_index, last.append_time_ms))

    # --- ledgers of former owners -------------------------------------------------------------------------------------

    @property
    def unknown(self) -> tuple[LedgerId, ...]:
        """Ledgers whose ends are not read yet."""
        return tuple(self._unread)

    def ends_read(self, ends: Sequence[EndOfLedger]) -> None:
        for each in ends:
            indexes = self._unread.pop(each.ledger_id, None)
            if indexes is not None:
                first, end = indexes
                count = each.length if end > first else 0
                self._spans[each.ledger_id] = LedgerSpan(
                    each.ledger_id, first, end, count, each.appended_ms, each.appended_ms, closed=True
                )
                self._ends[each.ledger_id] = each.end
        self._spans = dict(sorted(self._spans.items()))
        self.changes += 1

    @property
    def unknown_below(self) -> int:
        """Where the messages end whose sizes are not known."""
        return max((end for _, end in self._unread.values()), default=0)

    # --- answers ------------------------------------------------------------------------------------------------------

    def spans(self) -> list[LedgerSpan]:
        """All ledgers whose ends are known, oldest first."""
        return list(self._spans.values())

    def covered(self, bound: Position | None) -> Position | None:
        """The trim bound, behind its ledger if it covers the whole of a CLOSED one: no replay begins in that."""
        if bound is None:
            return None
        span = self._spans.get(bound.ledger_id)
        if span is not None and span.closed and bound.entry_id >= self._ends[bound.ledger_id]:
            return Position(LedgerId(bound.ledger_id + 1), NO_ENTRY)
        return bound

    def ages_from(self, index: int) -> Iterator[tuple[int, int]]:
        """(end index, highest append time so far) of messages from an index on, ascending."""
        ends = [(span.end_index, span.ended_ms) for span in self._spans.values() if span.end_index > index]
        marks = list(self._marks)
        ends += marks[bisect_right(marks, (index, 1 << 62)) :]
        highest = 0
        for end_index, append_time_ms in sorted(ends):
            highest = max(highest, append_time_ms)
            yield end_index, highest

    # --- changes ------------------------------------------------------------------------------------------------------

    def follow_age(self, age_ms: int | None) -> None:
        """The limit of age that matters has changed."""
        self._mark_ms = MARK_MS if age_ms is None else max(MARK_MS_MIN, age_ms // MARKS_PER_AGE)
        self.changes += 1

    def trimmed(self, first: LedgerId) -> None:
        """The log begins with this ledger now."""
        for ledgers in (self._spans, self._unread, self._ends):
            for ledger_id in [each for each in ledgers if each < first]:
                del ledgers[ledger_id]
        self.changes += 1
