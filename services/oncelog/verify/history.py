"""What happened, as its participants saw it: what was handed over, what was answered, what was read.

Order is by `at`, one count for the whole history: an event with a lower one ended before the other began. What is not
answered may or may not have happened, and so may what was answered with an error that decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.ids import Position, SequenceId


@dataclass(frozen=True, slots=True)
class HistoryOpening:
    """An instance of a producer was reported open. dense: its ids have no holes."""

    name: str
    instance: ProducerInstance
    last_sequence_id: SequenceId
    dense: bool
    at: int


@dataclass(slots=True)
class HistoryAppend:
    """One batch. opened: index of its instance in `History.opens`. result: None while nothing is known."""

    opened: int
    request: int
    ids: Sequence[int]
    values: Sequence[bytes]
    invoked_at: int
    answered_at: int | None = None
    result: Outcome | OncelogError | None = None

    @property
    def refused(self) -> bool:
        """The error says for certain that this append stored nothing, now or later."""
        return isinstance(self.result, OncelogError) and self.result.stored is False

    def kind_at(self, at: int) -> ResultKind | None:
        """What was answered of the message at this index; None while nothing is known of it."""
        if isinstance(self.result, StaleSequence):
            return ResultKind.STALE_SEQUENCE
        if self.result is None or isinstance(self.result, OncelogError):
            return None
        for part in self.result:
            if at < part.count:
                return part.kind
            at -= part.count
        return None


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """A reader was served one whole entry."""

    reader: str
    position: Position
    data: bytes
    at: int


@dataclass(slots=True)
class History:
    """Of one topic."""

    opens: list[HistoryOpening] = field(default_factory=list)
    appends: list[HistoryAppend] = field(default_factory=list)
    reads: list[HistoryRead] = field(default_factory=list)
    at: int = 0
    _open_appends: dict[tuple[int, int], HistoryAppend] = field(default_factory=dict)

    def opened(self, name: str, instance: ProducerInstance, last: SequenceId, *, dense: bool) -> int:
        """Note it; returns the index that its appends name."""
        self.at += 1
        self.opens.append(HistoryOpening(name, instance, last, dense, self.at))
        return len(self.opens) - 1

    def invoked(self, opened: int, request: int, ids: Sequence[int], values: Sequence[bytes]) -> None:
        self.at += 1
        append = HistoryAppend(opened, request, ids, values, self.at)
        self.appends.append(append)
        self._open_appends[opened, request] = append

    def answered(self, opened: int, request: int, result: Outcome | OncelogError) -> None:
        self.at += 1
        append = self._open_appends.pop((opened, request))
        append.answered_at, append.result = self.at, result

    def read(self, reader: str, position: Position, data: bytes) -> None:
        self.at += 1
        self.reads.append(HistoryRead(reader, position, data, self.at))
