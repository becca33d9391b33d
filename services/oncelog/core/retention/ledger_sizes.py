"""What each ledger of a topic's log holds: messages, bytes, and append times.

The owner counts what it appends itself. About the ledgers of former owners it knows only where they begin, until
somebody asks: then their records and their last entries are read, once (`unknown`, `ends_read`). The bytes of such a
ledger include its few grants.

The ledgers of a page count together, as one span, until the page is read: the first page, because ledgers are deleted
from there, and the page with the lowest message that a subscription needs. So a log of a million ledgers costs memory
for a few thousand.

Marks are append times of messages at some distance from each other. They say how old messages are within a ledger.
Only the newest are kept; of older ledgers their ends are known. When an older message was stored is read from its
entry, once somebody asks (`stored_ms`, `times_to_read`, `times_read`).
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog.core.formats.ledger_page import ListPage, PagedLedger, PageLink
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId, Position
from oncelog.core.policies.retention_rules import LedgerSpan
from oncelog.core.publishing.log import InFlight
from oncelog.core.topic_events.events import EndOfLedger

#: Marks that are kept, and their distance while no policy asks for ages.
MARKS_MAX = 256
MARK_MS = 10_000
#: The distance of marks under a limit of age: this part of it, and not less than the other.
MARKS_PER_AGE = 200
MARK_MS_MIN = 1_000
#: A time that is late by no more than this is not read from the entry.
EXACT_MS = 2 * MARK_MS
#: Messages whose times are kept because somebody asked; the ones that were asked for last.
TIMES_MAX = 256


class _Mark(NamedTuple):
    """The messages first_index .. end_index - 1 were stored from from_ms to append_ms."""

    end_index: int
    append_ms: int
    first_index: int
    from_ms: int


class LedgerSizes:
    """The ledgers of the log, oldest first, the open one last."""

    def __init__(self, record: TopicRecord, next_index: int) -> None:
        """record: of the topic, all ledgers CLOSED. next_index: where they end."""
        #: {former owners' ledger whose end is not read yet: (first index, end index)}
        self._unread: dict[LedgerId, tuple[int, int]] = {}
        self._spans: dict[LedgerId, LedgerSpan] = {}
        self._ends: dict[LedgerId, EntryId] = {}
        self._marks: deque[_Mark] = deque(maxlen=MARKS_MAX)
        #: of the newest mark
        self._marked_ms = 0
        self._mark_ms = MARK_MS
        #: {index of a message: when it was stored; None: asked for, and not read yet}
        self._times: dict[int, int | None] = {}
        #: grows with everything that can change a decision
        self.changes = 0
        #: (`changes`, bytes of all spans then)
        self._summed = (0, 0)
        links = record.ledgers
        ends = [*(link.base_index for link in links), next_index][1:]
        for link, end_index in zip(links, ends, strict=True):
            self._unread[link.ledger_id] = (link.base_index, end_index)
        #: {page: (its link, its end index)}, oldest first; and the pages whose ledgers count one by one
        self._pages: dict[LedgerId, tuple[PageLink, int]] = {}
        self._unfolded: dict[LedgerId, ListPage] = {}
        #: pages without a record: nothing more can be known of them
        self._gone: dict[LedgerId, None] = {}
        page_ends = [*(page.base_index for page in record.pages[1:]), *(link.base_index for link in links[:1])]
        for page, end_index in zip(record.pages, page_ends, strict=False):
            self._pages[page.name] = (page, end_index)
            self._fold(page.name)

    # --- what the owner appends ---------------------------------------------------------------------------------------

    def opened(self, ledger_id: LedgerId, first_index: int) -> None:
        """A ledger is open for entries; the one before it is CLOSED."""
        for other, span in self._spans.items():
            if not span.closed:
                self._spans[other] = replace(span, closed=True)
        self._spans[ledger_id] = LedgerSpan(ledger_id, first_index, first_index, 0, 0, 0, closed=False)
        self._ends[ledger_id] = NO_ENTRY
        self.changes += 1

    def dropped(self, ledger_id: LedgerId) -> None:
        """A ledger without an entry left the list."""
        for ledgers in (self._spans, self._unread, self._ends):
            ledgers.pop(ledger_id, None)

    def appended(self, ledger_id: LedgerId, entries: Sequence[InFlight]) -> None:
        """Entries of the open ledger are durable."""
        span, last = self._spans.get(ledger_id), entries[-1].header
        if span is None:
            return
        self._ends[ledger_id] = last.entry_id
        count = sum(entry.header.body_bytes for entry in entries if entry.batch or entry.chunk)
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
                before = self._marks[-1] if self._marks else _Mark(0, 0, 0, 0)
                first, from_ms = max((before.end_index, before.append_ms), (span.first_index, span.began_ms))
                self._marks.append(_Mark(span.end_index, span.ended_ms, first, from_ms))
            self._marked_ms = last.append_time_ms
            from_ms = entries[0].header.append_time_ms
            self._marks.append(_Mark(last.next_index, last.append_time_ms, span.end_index, from_ms))

    # --- ledgers of former owners -------------------------------------------------------------------------------------

    @property
    def unknown(self) -> tuple[LedgerId, ...]:
        """Ledgers whose ends are not read yet."""
        return tuple(self._unread)

    def unknown_from(self, index: int) -> tuple[LedgerId, ...]:
        """Ledgers with messages from this one on, whose ends are not read yet."""
        return tuple(ledger_id for ledger_id, (_, end) in self._unread.items() if end > index)

    def unknown_of(self, links: Sequence[LedgerLink]) -> tuple[LedgerId, ...]:
        """Those of these ledgers whose ends are not read yet."""
        return tuple(link.ledger_id for link in links if link.ledger_id in self._unread)

    def ends_read(self, ends: Sequence[EndOfLedger]) -> None:
        for each in ends:
            indexes = self._unread.pop(each.ledger_id, None)
            if indexes is not None:
                first, end = indexes
                count = each.length if end > first else 0
                self._spans[each.ledger_id] = LedgerSpan(
                    each.ledger_id, first, end, count, 0, each.appended_ms, closed=True
                )
                self._ends[each.ledger_id] = each.end
        self._sort()

    def _sort(self) -> None:
        self._spans = dict(sorted(self._spans.items()))
        self.changes += 1

    @property
    def unknown_below(self) -> int:
        """Where the messages end whose sizes are not known."""
        return max((end for _, end in self._unread.values()), default=0)

    # --- pages --------------------------------------------------------------------------------------------------------

    def _fold(self, name: LedgerId) -> None:
        """The ledgers of this page count together."""
        page, end_index = self._pages[name]
        former = self._unfolded.pop(name, None)
        for ledger in page.listed(former) if former is not None else ():
            del self._spans[ledger.ledger_id]
        self._spans[page.last] = LedgerSpan(
            page.last, page.base_index, end_index, page.message_bytes, 0, page.ended_ms, True, page.ledgers
        )
        self._sort()

    def pages_to_read(self, lowest: int | None) -> tuple[LedgerId, ...]:
        """The pages whose ledgers should count one by one, and do not. lowest: the lowest message that is needed."""
        names = list(self._pages)
        wanted = dict.fromkeys(names[:1])
        if lowest is not None:
            wanted |= dict.fromkeys(n for n, (page, end) in self._pages.items() if page.base_index <= lowest < end)
        for name in [each for each in self._unfolded if each not in wanted]:
            self._fold(name)
        return tuple(name for name in wanted if name not in self._unfolded and name not in self._gone)

    def page_read(self, name: LedgerId, page: ListPage | None) -> None:
        """The ledgers of this page count one by one from now on. None: it has no record, so they go together."""
        if page is None:
            self._gone[name] = None
        if page is None or name not in self._pages or name in self._unfolded:
            return
        link, end_index = self._pages[page.name]
        del self._spans[link.last]
        self._unfolded[page.name] = page
        listed = link.listed(page)
        ends = [*(ledger.base_index for ledger in listed), end_index][1:]
        for each, end in zip(listed, ends, strict=True):
            self._spans[each.ledger_id] = LedgerSpan(
                each.ledger_id, each.base_index, end, each.message_bytes, 0, each.ended_ms, closed=True
            )
        self._sort()

    def page_of(self, links: Sequence[LedgerLink], now_ms: int) -> ListPage:
        """A page with these ledgers. What is not known of one counts as no bytes, appended now: nothing goes early."""
        ledgers: list[PagedLedger] = []
        for link in links:
            span = self._spans.get(link.ledger_id)
            size, ended_ms = (0, now_ms) if span is None else (span.message_bytes, span.ended_ms)
            ledgers.append(PagedLedger(link.ledger_id, link.base_index, size, ended_ms))
        return ListPage(tuple(ledgers))

    def moved(self, page: ListPage, end_index: int) -> None:
        """The topic record links this page, which ends before the message `end_index`."""
        for ledger in page.ledgers:
            for ledgers in (self._spans, self._unread, self._ends):
                ledgers.pop(ledger.ledger_id, None)
        self._pages[page.name] = (page.link, end_index)
        self._fold(page.name)

    def cut(self, last_gone: LedgerId) -> tuple[PageLink | None, tuple[LedgerId, ...]]:
        """(What is left of the page in which this ledger is, the ledgers of it that go with this one).

        The page must have been read, unless it goes as a whole.
        """
        for name, (link, _) in self._pages.items():
            if link.first <= last_gone < link.last:
                page = self._unfolded[name]
                gone = tuple(each.ledger_id for each in link.listed(page) if each.ledger_id <= last_gone)
                return page.link_behind(last_gone), gone
        return None, ()

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def message_bytes(self) -> int | None:
        """Of all messages that are stored, one copy. None: the ends of some ledgers are not read yet."""
        if self._unread:
            return None
        # Thousands of topics are sorted by this, and few of them have changed since the last time.
        if self._summed[0] != self.changes:
            self._summed = self.changes, sum(span.message_bytes for span in self._spans.values())
        return self._summed[1]

    def spans(self) -> list[LedgerSpan]:
        """All ledgers whose ends are known, oldest first."""
        return list(self._spans.values())

    def boundaries(self) -> list[tuple[LedgerId, int]]:
        """(Ledger id, end index) of all ledgers but the last, where the log may be cut."""
        ends = [(span.ledger_id, span.end_index) for span in self._spans.values()]
        ends += [(ledger_id, end) for ledger_id, (_, end) in self._unread.items()]
        return sorted(ends)[:-1]

    def covered(self, bound: Position | None) -> Position | None:
        """The trim bound, behind its ledger if it covers the whole of a CLOSED one: no replay begins in that."""
        if bound is None:
            return None
        span, end = self._spans.get(bound.ledger_id), self._ends.get(bound.ledger_id)
        if span is not None and span.closed and end is not None and bound.entry_id >= end:
            return Position(LedgerId(bound.ledger_id + 1), NO_ENTRY)
        return bound

    def ages_from(self, index: int) -> Iterator[tuple[int, int]]:
        """(end index, highest append time so far) of messages from an index on, ascending."""
        # A span without messages ends where the last message does, and says nothing of when that was appended.
        spans = [span for span in self._spans.values() if span.end_index > max(index, span.first_index)]
        ends = [(span.end_index, span.ended_ms) for span in spans]
        ends += [mark[:2] for mark in self._marks if mark.end_index > index]
        highest = 0
        for end_index, append_time_ms in sorted(ends):
            highest = max(highest, append_time_ms)
            yield end_index, highest

    def stored_ms(self, index: int) -> int | None:
        """When a message was stored. None: it is not stored, or that is not known yet; it is then read soon.

        It is exact, or too early by EXACT_MS at most: what waits is rather shown as too old than as too young. For the
        same reason the time of an earlier message counts, if one was read, while that of this one is read.
        """
        known = self._times.get(index)
        if known is not None:
            return known
        earlier = max((at_ms for at, at_ms in self._times.items() if at_ms is not None and at < index), default=None)
        if not any(first <= index < end for first, end in self._unread.values()):
            span = next((span for span in self._spans.values() if span.end_index > index), None)
            if span is None or index < span.first_index:
                return None
            from_ms, to_ms = self._between(index, span)
            from_ms = max(from_ms, earlier or 0)
            if to_ms - from_ms <= EXACT_MS:
                return from_ms
        if index not in self._times:
            self._times[index] = None
            while len(self._times) > TIMES_MAX:
                del self._times[next(iter(self._times))]
        return earlier

    def _between(self, index: int, span: LedgerSpan) -> tuple[int, int]:
        """(not before, not after) this the message of the span was stored; 0: not known."""
        mark = next((mark for mark in self._marks if mark.end_index > index), None)
        if mark is not None and mark.first_index <= index:
            return mark.from_ms, mark.append_ms
        if mark is None and self._marks and self._marks[-1].end_index >= span.first_index:
            return self._marks[-1].append_ms, span.ended_ms
        return span.began_ms, span.ended_ms

    def times_to_read(self) -> tuple[int, ...]:
        """The messages whose times were asked for and are not known."""
        return tuple(index for index, at_ms in self._times.items() if at_ms is None)

    def times_read(self, times: Mapping[int, int | None]) -> None:
        """None: the entry could not be read. It is read again when somebody asks again."""
        for index, at_ms in times.items():
            if at_ms is None:
                self._times.pop(index, None)
            elif index in self._times:
                self._times[index] = at_ms

    # --- changes ------------------------------------------------------------------------------------------------------

    def follow_age(self, age_ms: int | None) -> None:
        """The limit of age that matters has changed."""
        self._mark_ms = MARK_MS if age_ms is None else max(MARK_MS_MIN, age_ms // MARKS_PER_AGE)
        self.changes += 1

    def trimmed(self, record: TopicRecord) -> list[LedgerSpan]:
        """The list of the log begins later now. Returns what left it."""
        first = record.pages[0].first if record.pages else record.ledgers[0].ledger_id
        gone = [span for span in self._spans.values() if span.ledger_id < first]
        for ledgers in (self._spans, self._unread, self._ends):
            for ledger_id in [each for each in ledgers if each < first]:
                del ledgers[ledger_id]
        kept = {page.name: page for page in record.pages}
        self._pages = {name: (kept[name], end) for name, (_, end) in self._pages.items() if name in kept}
        self._unfolded = {name: page for name, page in self._unfolded.items() if name in kept}
        self.changes += 1
        return gone
