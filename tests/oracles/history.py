"""The history of a topic as its clients saw it: appends, answers and reads.

`at` orders the events of a history: an event with a lower number ended before one with a higher number began. An append
without an answer may be stored or not, and so may one with an error that leaves this open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.ids import Position, SequenceId


@dataclass(frozen=True, slots=True)
class HistoryOpening:
    """The opening of a producer instance was answered. dense: its ids have no gaps."""

    name: str
    instance: ProducerInstance
    last_sequence_id: SequenceId
    dense: bool
    at: int


@dataclass(slots=True)
class HistoryAppend:
    """One batch. opened: index of its instance in `History.opens`. result: None before the answer. first: the first id
    of a unit, whose `ids` is its last one."""

    opened: int
    request: int
    ids: Sequence[int]
    values: Sequence[bytes]
    invoked_at: int
    answered_at: int | None = None
    result: Outcome | OncelogError | None = None
    first: int | None = None

    @property
    def refused(self) -> bool:
        """Whether the error means that this append stores nothing, now or later."""
        return isinstance(self.result, OncelogError) and self.result.stored is False

    def kind_at(self, at: int) -> ResultKind | None:
        """The answer for the message at this index. None if its result is unknown."""
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
    """A reader received one whole entry."""

    reader: str
    position: Position
    data: bytes
    at: int


@dataclass(slots=True)
class History:
    """The events of one topic."""

    opens: list[HistoryOpening] = field(default_factory=list)
    appends: list[HistoryAppend] = field(default_factory=list)
    reads: list[HistoryRead] = field(default_factory=list)
    at: int = 0
    _open_appends: dict[tuple[int, int], HistoryAppend] = field(default_factory=dict)

    def opened(self, name: str, instance: ProducerInstance, last: SequenceId, *, dense: bool) -> int:
        """Returns the index for the appends of this instance."""
        self.at += 1
        self.opens.append(HistoryOpening(name, instance, last, dense, self.at))
        return len(self.opens) - 1

    def invoked(
        self, opened: int, request: int, ids: Sequence[int], values: Sequence[bytes], *, first: int | None = None
    ) -> None:
        self.at += 1
        append = HistoryAppend(opened, request, ids, values, self.at, first=first)
        self.appends.append(append)
        self._open_appends[opened, request] = append

    def answered(self, opened: int, request: int, result: Outcome | OncelogError) -> None:
        self.at += 1
        append = self._open_appends.pop((opened, request))
        append.answered_at, append.result = self.at, result

    def read(self, reader: str, position: Position, data: bytes) -> None:
        self.at += 1
        self.reads.append(HistoryRead(reader, position, data, self.at))
