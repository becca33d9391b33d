"""Checks of the SDK's arguments: a wrong type or value raises InvalidArgument, whose `field` names the argument."""

import inspect
from math import ceil
from operator import index
from pathlib import Path
from typing import TypeVar

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict

#: What producers are opened with, by the names that users know.
MODES = {"monotonic": SequenceMode.MONOTONIC, "contiguous": SequenceMode.CONTIGUOUS}
CONFLICTS = {"fence": OnConflict.FENCE, "refuse": OnConflict.REFUSE}
ArgumentT = TypeVar("ArgumentT")
ChoiceT = TypeVar("ChoiceT")


def check_type(field: str, value: object, kinds: type | tuple[type, ...], meaning: str) -> None:
    """meaning: the accepted types in words, for the error. A bool is never an accepted int."""
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise InvalidArgument(f"{field} must be {meaning}, not {type(value).__name__}", field=field)


def check_takes(field: str, function: object, *names: str) -> None:
    """A function, or another callable, that takes these arguments by position. One whose parameters cannot be known
    is accepted. A decorator's own parameters count, not those of what it wraps: it may add arguments."""
    wanted = f"({', '.join(names)})"
    if not callable(function):
        raise InvalidArgument(
            f"{field} must be a function that takes {wanted}, not {type(function).__name__}", field=field
        )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        found = f"{getattr(function, '__name__', type(function).__name__)}({', '.join(signature.parameters)})"
        message = f"{field} must take {wanted}, by position: {found} cannot be called so: {error}"
        raise InvalidArgument(message, field=field) from None


def check_seconds(field: str, value: float | None, *, zero_allowed: bool = False) -> None:
    """A number of seconds above 0 (or 0 where that is allowed), or None for no limit."""
    if value is None:
        return
    check_type(field, value, (int, float), "a number of seconds or None")
    if not (value > 0 or (zero_allowed and value == 0)):
        least = "0 or more" if zero_allowed else "above 0"
        raise InvalidArgument(f"{field} must be {least} seconds, or None for no limit; it is {value!r}", field=field)


def milliseconds(field: str, value: float | None, most_s: float, *, zero_allowed: bool = False) -> int:
    """A number of seconds, above 0 (or 0 where that is allowed) and at most most_s, in ms, rounded up. None: 0."""
    check_seconds(field, value, zero_allowed=zero_allowed)
    if value is None:
        return 0
    if not value <= most_s:
        message = f"{field} must be at most {most_s:g} seconds, not {value!r}"
        raise InvalidArgument(message, field=field, limit=int(most_s))
    return ceil(value * 1000)


def integer(field: str, value: int, least: int | None = None, most: int | None = None) -> int:
    """The value as a plain int, least to most; also integers of other libraries, such as numpy's."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidArgument(f"{field} must be an integer, not {type(value).__name__}", field=field)
    if least is not None and most is not None and not least <= number <= most:
        raise InvalidArgument(f"{field} must be {least} to {most}, not {number}", field=field, limit=most)
    return number


def choice(field: str, choices: dict[ArgumentT, ChoiceT], value: ArgumentT) -> ChoiceT:
    """The choice that `value` names."""
    names = ", ".join(repr(name) for name in choices)
    if (value is not None and not isinstance(value, str)) or value not in choices:
        raise InvalidArgument(f"{field} must be one of {names}, not {value!r}", field=field)
    return choices[value]


def check_token(token: object) -> None:
    if token is not None and not isinstance(token, str | Path) and not callable(token):
        message = f"token must be a string, a pathlib.Path of a file, or a function, not {type(token).__name__}"
        raise InvalidArgument(message, field="token")
