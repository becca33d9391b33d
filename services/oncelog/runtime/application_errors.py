"""Errors of an application's functions in a log: their text, and which of them are new.

The traceback of a new error is worth its lines, that of a repetition is not.
"""

from collections.abc import Iterator
from itertools import islice
from traceback import walk_tb
from types import TracebackType

from oncelog.core.delivery.store_binding.events import REASON_MAX

#: An error that has not come for so long is new again: its traceback may be far back in the log.
FORGOTTEN_AFTER_S = 600.0
KINDS_MAX = 16
#: Of one error, from the outermost on; and errors of one chain.
_FRAMES_MAX, _CHAIN_MAX = 100, 10

Place = tuple[str, int]
#: Of each error of a chain its type, and the place of each frame. Its text may name the message that it is about.
Kind = tuple[tuple[type[BaseException], tuple[Place, ...]], ...]


class SeenErrors:
    """The kinds of errors that came in the last FORGOTTEN_AFTER_S, at most KINDS_MAX."""

    def __init__(self) -> None:
        #: {kind: when it came last, in seconds}
        self._seen: dict[Kind, float] = {}

    def is_new(self, kind: Kind, now_s: float) -> bool:
        """An error of this kind has come at this time. Whether none came in the FORGOTTEN_AFTER_S before; False also if
        KINDS_MAX others came meanwhile: this one is not remembered."""
        self._seen = {each: last_s for each, last_s in self._seen.items() if now_s - last_s < FORGOTTEN_AFTER_S}
        is_known = kind in self._seen
        if is_known or len(self._seen) < KINDS_MAX:
            self._seen[kind] = now_s
        return not is_known and kind in self._seen

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._seen


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


def reason_of(error: BaseException) -> str:
    """What an application's function raised, as text that every log, dead letter and JSON takes: at most REASON_MAX
    characters, without surrogates, also if its `__str__` raises (hazard error-without-a-text)."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001  # of the application
        text = f"its text cannot be shown: __str__ raised {type(failure).__name__}"
    text = f"{type(error).__name__}: {text}".encode(errors="backslashreplace").decode()
    return text if len(text) <= REASON_MAX else text[: REASON_MAX - 1] + "…"
