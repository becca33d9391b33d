"""What one reader does about entries that cannot be read: stop there, or skip them and tell.

An entry cannot be read when its payload contradicts its header (only an older owner stored such entries), or when every
copy of it is damaged. The numbering of the log counts its messages all the same, so the messages behind a skipped entry
keep their index.
"""

import logging
from collections import deque
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, OncelogError, UnreadableEntry
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.ids import EntryId, LedgerId, Position

logger = logging.getLogger(__name__)

#: Skipped entries that a reader remembers; older ones are only counted.
SKIPPED_MAX = 1000


class OnCorrupt(Enum):
    """RAISE: reading stops at the entry, for good. SKIP: reading goes on behind it."""

    RAISE = "raise"
    SKIP = "skip"


class Skipped(NamedTuple):
    """One entry that a reader passed over.

    first_index: number in the topic of the first message that was lost to the reader; None where not known.
    count: how many messages; None where every copy of the entry is damaged, so that nobody knows.
    """

    ledger_id: int
    entry_id: int
    first_index: int | None
    count: int | None  # type: ignore[assignment]  # hides tuple.count, which nobody counts with
    reason: str

    def __str__(self) -> str:
        return f"entry {self.ledger_id}:{self.entry_id} ({_shown(self.first_index, self.count)}): {self.reason}"


class SkippedEntries(NamedTuple):
    """total: how many entries a reader skipped. newest: the last SKIPPED_MAX of them, oldest first."""

    total: int
    newest: tuple[Skipped, ...]


def _shown(first: int | None, count: int | None) -> str:
    if first is None:
        return "messages of unknown number"
    if count is None:
        return f"messages from index {first} on"
    return f"message {first}" if count == 1 else f"messages {first} to {first + count - 1}"


class Corruption:
    """Of one reader: its choice, what it skipped, and where it stands.

    advice: what the error says about passing over the entry, in the words of the API that the application uses.
    """

    def __init__(
        self,
        topic: str,
        choice: OnCorrupt,
        *,
        advice: str = "Create the reader with on_corrupt='skip' to pass over such entries",
    ) -> None:
        self._advice = advice
        self.topic = topic
        self.choice = choice
        self._newest: deque[Skipped] = deque(maxlen=SKIPPED_MAX)
        self._total = 0
        #: position of the last entry that was skipped
        self.passed: Position | None = None
        #: index behind the last entry that arrived
        self.next_index: int | None = None

    @property
    def skipped(self) -> SkippedEntries:
        return SkippedEntries(self._total, tuple(self._newest))

    def cannot_decode(self, entry: EntryHeader, error: CorruptEntry, *, first_batch_index: int) -> None:
        """Skip an entry that is here and cannot be decoded, or raise CorruptEntry.

        first_batch_index: the first message wanted of it.
        """
        before = max(0, first_batch_index - entry.skip_first)
        first, count = entry.base_index + before, max(0, entry.count - before)
        self._met(Skipped(*entry.position, first, count, error.message), CorruptEntry)

    def unreadable(self, error: OncelogError) -> Position | None:
        """The position of the entry that the owner could not read and that is now skipped; None: the error stands."""
        ledger_id, entry_id = error.details.get("ledger_id"), error.details.get("entry_id")
        if not isinstance(error, UnreadableEntry) or not isinstance(ledger_id, int) or not isinstance(entry_id, int):
            return None
        position = Position(LedgerId(ledger_id), EntryId(entry_id))
        if self.passed is not None and position <= self.passed:
            return None
        self._met(Skipped(*position, self.next_index, None, error.message), UnreadableEntry)
        return position

    def _met(self, skipped: Skipped, kind: type[CorruptEntry | UnreadableEntry]) -> None:
        """Raises `kind` unless entries are skipped."""
        position = Position(LedgerId(skipped.ledger_id), EntryId(skipped.entry_id))
        if self.choice is OnCorrupt.RAISE:
            raise kind(
                f"{self.topic}: cannot read {skipped}. {self._advice}, or start behind this one, at message id "
                f"{position.ledger_id}:{position.entry_id + 1}:0 with inclusive=True",
                ledger_id=skipped.ledger_id,
                entry_id=skipped.entry_id,
                first_index=skipped.first_index,
                count=skipped.count,
            )
        self.passed = position
        self._newest.append(skipped)
        self._total += 1
        logger.warning("%s: skipped %s", self.topic, skipped)
