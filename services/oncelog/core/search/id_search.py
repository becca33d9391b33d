"""Where the log has one sequence id of one producer: a bisection, because its ids ascend. Pure.

    search = IdSearch(first_index, end_index, sequence_id)
    while (at := search.next_index) is not None: read from `at` on, until a batch of the producer, or for a while
        search.found(...) or search.nothing(...)

The log has other producers' messages between those of this one. So a look that reads a while and finds none splits what
is left in two, and the larger part is next. What is left may then be many parts: a caller ends the search when it has
read enough, and says so.

What was stored without deduplication belongs to no producer, and is not found.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Indexes first to end - 1."""

    first: int
    end: int


class IdSearch:
    """Indexes are those of messages. `left`: where the id may still be; empty: it is nowhere, or was found."""

    def __init__(self, first_index: int, end_index: int, sequence_id: int) -> None:
        self._id = sequence_id
        self.left = [Part(first_index, end_index)] if first_index < end_index else []
        self.looks = 0

    @property
    def next_index(self) -> int | None:
        """Where to read from, the middle of the largest part; None: the search is over."""
        if not self.left:
            return None
        part = max(self.left, key=lambda each: each.end - each.first)
        return (part.first + part.end) // 2

    def nothing(self, first: int, end: int) -> None:
        """No message from `first` to before `end` is of the producer."""
        self.looks += 1
        self._keep([piece for part in self.left for piece in _without(part, first, end)])

    def batch(self, looked_from: int, index: int, end: int, first_id: int, last_id: int) -> bool:
        """The messages from `index` to before `end` are a batch of the producer with these ids, the first one at or
        behind `looked_from`. Returns whether the id is within them: then it is there, or nowhere."""
        if first_id <= self._id <= last_id:
            self.left = []
            return True
        self.nothing(looked_from, end)
        if last_id < self._id:
            self._keep([Part(max(part.first, end), part.end) for part in self.left])
        else:
            self._keep([Part(part.first, min(part.end, looked_from)) for part in self.left])
        return False

    def _keep(self, parts: list[Part]) -> None:
        self.left = [part for part in parts if part.first < part.end]


def _without(part: Part, first: int, end: int) -> list[Part]:
    return [Part(part.first, min(part.end, first)), Part(max(part.first, end), part.end)]
