"""How a reader treats entries that cannot be read: it stops with an error, or skips and records them.

An entry cannot be read when its payload contradicts its header (only older versions of the owner stored such entries),
when every copy of it is damaged, or when it is proved lost, often with others. Its messages still count in the topic's
numbering, so the messages after a skipped entry keep their index.
"""

import logging
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, EntriesLost, OncelogError, UnreadableEntry
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.ids import EntryId, LedgerId, Position

logger = logging.getLogger(__name__)

#: Skipped entries that a reader keeps; older ones are only counted.
SKIPPED_MAX = 1000


class OnCorrupt(Enum):
    """RAISE: each read raises the entry's error. SKIP: reading continues with the next entry."""

    RAISE = "raise"
    SKIP = "skip"


class Skipped(NamedTuple):
    """One entry, or several lost ones in a row, that a reader skipped.

    Attributes:
        ledger_id, entry_id: the (first) entry's position.
        first_index: index in the topic of the first message that the reader lost; None when it is unknown.
        count: number of lost messages; None when every copy of the entry is damaged, so that it is unknown.
        reason: why the entry cannot be read.
        last_entry_id: the last skipped entry of the same ledger; None: only one was skipped.
    """

    ledger_id: int
    entry_id: int
    first_index: int | None
    count: int | None  # type: ignore[assignment]  # hides tuple.count, which has no use here
    reason: str
    last_entry_id: int | None = None

    @property
    def last(self) -> int:
        """The entry id of the last skipped entry."""
        return self.entry_id if self.last_entry_id is None else self.last_entry_id

    @property
    def entry_count(self) -> int:
        return self.last - self.entry_id + 1

    def __str__(self) -> str:
        first = f"{self.ledger_id}:{self.entry_id}"
        which = f"entry {first}" if self.entry_count == 1 else f"entries {first} to {self.ledger_id}:{self.last}"
        return f"{which} ({_shown(self.first_index, self.count)}): {self.reason}"


class SkippedEntries(NamedTuple):
    """total: the number of entries that a reader skipped. newest: the last 1000 of them, oldest first."""

    total: int
    newest: tuple[Skipped, ...]


def _shown(first: int | None, count: int | None) -> str:
    if first is None:
        return "messages of unknown number"
    if count is None:
        return f"messages from index {first} on"
    return f"message {first}" if count == 1 else f"messages {first} to {first + count - 1}"


def _details(
    skipped: Skipped, kind: type[CorruptEntry | EntriesLost | UnreadableEntry], following: Position | None
) -> dict[str, int]:
    if kind is not EntriesLost:
        return {"entry_id": skipped.entry_id}
    lost = {"first": skipped.entry_id, "last": skipped.last}
    if following is not None:
        lost |= {"next_ledger_id": following.ledger_id, "next_entry_id": following.entry_id}
    return lost


def _following(details: Mapping[str, object]) -> Position | None:
    """Where the log goes on behind a part of it that no list has any more; None: the error is of another one."""
    ledger_id, entry_id = details.get("next_ledger_id"), details.get("next_entry_id")
    if isinstance(ledger_id, int) and isinstance(entry_id, int):
        return Position(LedgerId(ledger_id), EntryId(entry_id))
    return None


class Corruption:
    """The skipped entries and the position of one reader.

    advice: the error's hint on how to skip such entries, in the terms of the API that the application uses.
    """

    def __init__(
        self,
        topic: str,
        choice: OnCorrupt,
        *,
        advice: str = "Create the reader with on_corrupt='skip' to skip such entries",
    ) -> None:
        self._advice = advice
        self.topic = topic
        self.choice = choice
        self._newest: deque[Skipped] = deque(maxlen=SKIPPED_MAX)
        self._total = 0
        #: position of the last entry that was skipped, or was trimmed after it was received
        self.passed: Position | None = None
        #: index after the last message of the newest received entry
        self.next_index: int | None = None

    def restart(self) -> None:
        """The reader goes on elsewhere."""
        self.passed = self.next_index = None

    @property
    def skipped(self) -> SkippedEntries:
        return SkippedEntries(self._total, tuple(self._newest))

    def cannot_decode(self, entry: EntryHeader, error: CorruptEntry, *, first_batch_index: int) -> None:
        """Skip a received entry that cannot be decoded, or raise CorruptEntry.

        first_batch_index: the first message of the entry that was wanted.
        """
        before = max(0, first_batch_index - entry.skip_first)
        first, count = entry.base_index + before, max(0, entry.count - before)
        self._record(Skipped(*entry.position, first, count, error.message), CorruptEntry)

    def unreadable(self, error: OncelogError) -> Position | None:
        """Where reading goes on behind entries that the owner could not read and that are now skipped; None: not such
        an error."""
        details, lost = error.details, isinstance(error, EntriesLost)
        ledger_id, first = details.get("ledger_id"), details.get("first" if lost else "entry_id")
        last = details.get("last") if lost else first
        if not isinstance(error, EntriesLost | UnreadableEntry):
            return None
        if not isinstance(ledger_id, int) or not isinstance(first, int) or not isinstance(last, int):
            return None
        position = Position(LedgerId(ledger_id), EntryId(last))
        if self.passed is not None and position <= self.passed:
            return None
        skipped = Skipped(ledger_id, first, self.next_index, None, error.message, None if last == first else last)
        following = _following(details)
        self._record(skipped, type(error), following)
        return following or Position(position.ledger_id, EntryId(last + 1))

    def _record(
        self,
        skipped: Skipped,
        kind: type[CorruptEntry | EntriesLost | UnreadableEntry],
        following: Position | None = None,
    ) -> None:
        """Record the entries. following: where the log goes on; None: behind them. Raises `kind` unless entries are
        skipped."""
        position = Position(LedgerId(skipped.ledger_id), EntryId(skipped.last))
        if self.choice is OnCorrupt.RAISE:
            raise kind(
                f"{self.topic}: cannot read {skipped}. {self._advice}, or start after this one, at message id "
                f"{following or Position(position.ledger_id, EntryId(skipped.last + 1))}:0 with inclusive=True",
                ledger_id=skipped.ledger_id,
                **_details(skipped, kind, following),
                first_index=skipped.first_index,
                count=skipped.count,
            )
        self.passed = position
        self._newest.append(skipped)
        self._total += skipped.entry_count
        logger.warning("%s: skipped %s", self.topic, skipped)
