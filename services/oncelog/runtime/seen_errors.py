"""Which errors of one place are new: their traceback is worth its lines in a log, that of a repetition is not."""

from collections.abc import Iterator
from itertools import islice
from traceback import walk_tb
from types import TracebackType

#: An error that has not come for so long is new again: its traceback may be far back in the log.
FORGOTTEN_AFTER_S = 600.0
KINDS_MAX = 16
#: Of one error, from the outermost on; and errors of one chain.
_FRAMES_MAX, _CHAIN_MAX = 100, 10

Place = tuple[str, int]
#: Of each error of a chain its type, and the place of each frame. Its text may name the message that it is about.
Kind = tuple[tuple[type[BaseException], tuple[Place, ...]], ...]


class SeenErrors:
    """The kinds of errors that came last, at most KINDS_MAX."""

    def __init__(self) -> None:
        #: {kind: when it came last, in seconds}; the newest one is the last
        self._seen: dict[Kind, float] = {}

    def is_new(self, kind: Kind, now_s: float) -> bool:
        """An error of this kind has come at this time. Whether none came in the FORGOTTEN_AFTER_S before."""
        last_s = self._seen.pop(kind, None)
        self._seen[kind] = now_s
        if len(self._seen) > KINDS_MAX:
            del self._seen[next(iter(self._seen))]
        return last_s is None or now_s - last_s >= FORGOTTEN_AFTER_S


def kind_of(error: BaseException) -> Kind:
    """Equal for errors that were raised in the same way at the same place."""
    return tuple((type(each), tuple(_places(each.__traceback__))) for each in islice(_chain(error), _CHAIN_MAX))


def _places(traceback: TracebackType | None) -> Iterator[Place]:
    """File and line of each frame. If one object is raised again and again, its traceback has the frames of each time,
    and each time begins at the same place: those of the last time count."""
    first: Place | None = None
    for frame, line in islice(walk_tb(traceback), _FRAMES_MAX):
        place = (frame.f_code.co_filename, line)
        if place == first:
            return
        first = first or place
        yield place


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from, as far as a traceback shows it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
