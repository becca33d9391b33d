"""The copies of a mirror beside the messages that they are copies of. Pure.

    originals, ascending ──┐
                           ├──> each own message of the source has one copy, in order, with its place, checksum, content
    copies, as stored ─────┘

Both come in runs: consecutive messages of one batch. One original run is kept at a time, and the ranges that have no
copy, as far as RANGES_KEPT; so the memory does not depend on the number of messages.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from oncelog.core.formats.message_id import MessageId

#: Ranges without a copy that are kept, to tell a copy that is late from one that is doubled.
RANGES_KEPT = 10_000
#: Findings that are listed; all are counted.
FINDINGS_KEPT = 100

#: What a message is made of, of rows start to stop - 1 of its run.
Content = Callable[[int, int], object]


class Run(NamedTuple):
    """Consecutive messages of one batch of the source, or their copies. first: index in the source. place: of the first
    message there. checksum: of the batch there. at: index of the first message where it was read, for findings."""

    first: int
    rows: int
    place: MessageId
    checksum: int
    content: Content
    at: int

    @property
    def end(self) -> int:
        return self.first + self.rows


class MirrorFinding(NamedTuple):
    """rule: missing, doubled, order or differs. first: index in the source of the first message."""

    rule: str
    first: int
    message: str


@dataclass(slots=True)
class MirrorComparison:
    """Use: while `wants(copy)`: `add_original`, or `end_originals`; then `add_copy`. At the end `end_copies`, the other
    originals, and `end_originals`.

    Attributes:
        source_first: index of the first message that the source has; copies of older ones are not compared.
        target_trimmed: the target has deleted its first messages: originals before the first copy are not compared.
        compared: copies with their originals. not_compared: messages of which one side is deleted.
        missing, doubled, order, differs: messages with that finding.
        not_copied: messages behind the last copy. not_copied_from: index of the first one; None: there is none.
    """

    source_first: int = 0
    target_trimmed: bool = False
    compared: int = 0
    not_compared: int = 0
    missing: int = 0
    doubled: int = 0
    order: int = 0
    differs: int = 0
    not_copied: int = 0
    not_copied_from: int | None = None
    findings: list[MirrorFinding] = field(default_factory=list)
    _current: Run | None = None
    #: every own message of the source below it was seen
    _next: int = 0
    #: before the current run: copies of other clusters
    _not_own: range = range(0)
    _ended: bool = False
    _copies_ended: bool = False
    _any_copy: bool = False
    _gaps: list[tuple[int, int]] = field(default_factory=list)

    def wants(self, copy: Run) -> bool:
        """Whether another original is needed before this copy."""
        return not self._ended and (self._current is None or self._current.end <= copy.first)

    def add_original(self, run: Run) -> None:
        """The next messages of the source that are no copies themselves."""
        self._leave_current()
        self._not_own = range(self._next, run.first)
        self._current, self._next = run, run.first

    def end_originals(self) -> None:
        """There are no more."""
        self._leave_current()
        self._current, self._ended = None, True

    def end_copies(self) -> None:
        """What comes now has no copy yet."""
        self._copies_ended = True

    def add_copy(self, copy: Run) -> None:
        if copy.first in self._not_own:
            self._unknown(copy)
            return
        late = min(copy.end, self._next) - copy.first
        if late > 0:
            self._late(copy, late)
            if late == copy.rows:
                return
            copy = _behind(copy, late)
        self._any_copy = True
        current = self._current
        if current is None or copy.first < current.first or copy.first >= current.end:
            self._unknown(copy)
            return
        self._without_copy(self._next, copy.first)
        rows = min(copy.end, current.end) - copy.first
        self._compare(current, copy, rows)
        self._next = copy.first + rows
        if rows < copy.rows:
            self._unknown(_behind(copy, rows))

    @property
    def has_ended(self) -> bool:
        """Whether all originals were seen."""
        return self._ended

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.doubled or self.order or self.differs)

    # --- findings -----------------------------------------------------------------------------------------------------

    def _compare(self, original: Run, copy: Run, rows: int) -> None:
        offset = copy.first - original.first
        place = replace(original.place, batch_index=original.place.batch_index + offset)
        what = ""
        if copy.place != place:
            what = f"it says that it is of message {copy.place}, and the source has {place} there"
        elif copy.checksum != original.checksum:
            what = f"its batch had checksum {copy.checksum:#x} at the source, which has {original.checksum:#x} there"
        elif copy.content(0, rows) != original.content(offset, offset + rows):
            what = "its content is another one"
        if what:
            self.differs += rows
            self._find("differs", copy.first, f"{_rows(rows)} at index {copy.at} of the target: {what}")
        else:
            self.compared += rows

    def _unknown(self, copy: Run) -> None:
        self._any_copy = True
        if copy.first < self.source_first:
            self.not_compared += copy.rows
            return
        self.differs += copy.rows
        text = f"{_rows(copy.rows)} at index {copy.at} of the target: the source has no such message"
        self._find("differs", copy.first, text)

    def _late(self, copy: Run, rows: int) -> None:
        """Of messages that were passed already."""
        if copy.first < self.source_first:
            self.not_compared += rows
            return
        moved = self._fill(copy.first, copy.first + rows)
        self.order += moved
        self.missing -= moved
        self.doubled += rows - moved
        rule = "order" if moved else "doubled"
        what = "it comes behind later ones" if moved else "it has a copy already"
        self._find(rule, copy.first, f"{_rows(rows)} at index {copy.at} of the target: {what}")

    def _leave_current(self) -> None:
        if self._current is not None:
            self._without_copy(self._next, self._current.end)
            self._next = self._current.end

    def _without_copy(self, first: int, end: int) -> None:
        if end <= first:
            return
        if self._copies_ended:
            self.not_copied += end - first
            self.not_copied_from = first if self.not_copied_from is None else self.not_copied_from
        elif self.target_trimmed and not self._any_copy:
            self.not_compared += end - first
        else:
            self.missing += end - first
            if self._gaps and self._gaps[-1][1] == first:
                self._gaps[-1] = (self._gaps[-1][0], end)
            elif len(self._gaps) < RANGES_KEPT:
                self._gaps.append((first, end))
            self._find("missing", first, f"the target has no copy of messages {first} to {end - 1} of the source")

    def _fill(self, first: int, end: int) -> int:
        """Take these indexes out of the ranges without a copy; how many were there."""
        kept: list[tuple[int, int]] = []
        taken = 0
        for low, high in self._gaps:
            begin, stop = max(low, first), min(high, end)
            if stop <= begin:
                kept.append((low, high))
                continue
            taken += stop - begin
            kept += [each for each in ((low, begin), (stop, high)) if each[0] < each[1]]
        self._gaps = kept
        return taken

    def _find(self, rule: str, index: int, message: str) -> None:
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(MirrorFinding(rule, index, message))


def _behind(run: Run, rows: int) -> Run:
    """Without its first rows."""
    place = replace(run.place, batch_index=run.place.batch_index + rows)
    content = run.content
    return Run(
        run.first + rows, run.rows - rows, place, run.checksum,
        lambda start, stop: content(rows + start, rows + stop), run.at + rows,
    )  # fmt: skip


def _rows(count: int) -> str:
    return "a copy" if count == 1 else f"{count} copies"
