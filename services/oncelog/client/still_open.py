"""What a client has opened and must close."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

OpenedT = TypeVar("OpenedT")

#: So many that have ended may be kept besides.
_ENDED_MAX = 16


class StillOpen(Generic[OpenedT]):
    """The producers, readers or consumers of one client, in the order in which they were opened.

    Those that have ended are dropped when they are about as many as the others, so that opening one costs the same for
    a client with 10,000 of them. ended: whether one has ended; it never changes back.
    """

    def __init__(self, ended: Callable[[OpenedT], bool]) -> None:
        self._ended = ended
        self._opened: list[OpenedT] = []
        self._drop_at = _ENDED_MAX

    def add(self, opened: OpenedT) -> None:
        if len(self._opened) >= self._drop_at:
            self._opened = [each for each in self._opened if not self._ended(each)]
            self._drop_at = 2 * len(self._opened) + _ENDED_MAX
        self._opened.append(opened)

    def __iter__(self) -> Iterator[OpenedT]:
        """Also some of those that have ended."""
        return iter(tuple(self._opened))
