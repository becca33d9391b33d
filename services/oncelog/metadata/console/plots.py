"""Plots with axes: values over time as the geometry of SVG, which the templates draw.

The axis of values begins at 0 and ends at a round number; the axis of time has round times in UTC. A value that is not
known is a gap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oncelog.metadata.console.shown import binary, duration, number

WIDTH, HEIGHT = 380, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 8, 20
_MARKS_MAX = 4
#: {name of a range of REST: (how a link calls it, ms between marks of the axis of time)}
RANGES = {
    "10m": ("10 minutes", 120_000),
    "1h": ("1 hour", 900_000),
    "6h": ("6 hours", 5_400_000),
    "24h": ("24 hours", 21_600_000),
}
#: Of which up to four times are written exactly in one unit.
_SECONDS = (1, 2, 5, 10, 15, 60, 120, 300, 900, 3_600, 7_200, 21_600, 86_400)


@dataclass(frozen=True, slots=True)
class Unit:
    """How the values of a plot are written. after: behind each value. steps: between marks of the axis, ascending."""

    text: Callable[[float | None], str]
    after: str = ""
    steps: tuple[float, ...] = tuple(each * 10.0**power for power in range(-3, 15) for each in (1, 2, 5))

    def of(self, value: float | None) -> str:
        return self.text(value) + (self.after if value is not None else "")


def _plain(value: float | None) -> str:
    """With up to three digits behind the point below 1."""
    return f"{value:.3f}".rstrip("0").rstrip(".") if value is not None and 0 < value < 1 else number(value)


_BINARY = tuple(each * 1024.0**power for power in range(6) for each in (1, 2, 5, 10, 20, 50, 100, 200, 500))
_WHOLE = tuple(each * 10.0**power for power in range(15) for each in (1, 2, 5))
PER_SECOND, MESSAGES, MS = Unit(_plain, "/s"), Unit(number, steps=_WHOLE), Unit(_plain, "\u202fms")
BYTES_PER_SECOND, AGE = Unit(binary, "/s", _BINARY), Unit(duration, steps=_SECONDS)


@dataclass(frozen=True, slots=True)
class PlottedLine:
    """name: in the legend. number: of its style, from 1 on. runs: `points` of polylines. newest, highest: in words."""

    name: str
    number: int
    runs: list[str]
    newest: str
    highest: str


@dataclass(frozen=True, slots=True)
class Plot:
    """times, marks: (place, text) on the axis of time and on that of values."""

    title: str
    lines: list[PlottedLine]
    times: list[tuple[float, str]]
    marks: list[tuple[float, str]]

    @property
    def label(self) -> str:
        """The plot for those who do not see it."""
        told = (f"{line.name} now {line.newest}, at most {line.highest}" for line in self.lines)
        return f"{self.title}: {'; '.join(told)}"


def plot(title: str, unit: Unit, history: Mapping[str, Any], lines: Mapping[str, str], *, every_ms: int) -> Plot | None:
    """history: an answer of REST, with `lines`, `begin_ms` and `step_ms`. lines: {line of it: name in the legend}.
    every_ms: between the marks of the axis of time. None: nothing is known."""
    values: dict[str, Sequence[float | None]] = {name: history["lines"][line] for line, name in lines.items()}
    known = [value for line in values.values() for value in line if value is not None]
    if not known:
        return None
    step, top = axis(max(known) or 1.0, unit.steps)
    count = max(map(len, values.values()))
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x_of(place: float) -> float:
        return round(_LEFT + place * width / count, 1)

    def y_of(value: float) -> float:
        return round(_TOP + height * (1 - value / top), 1)

    begin_ms, step_ms = history["begin_ms"], history["step_ms"]
    first_ms = -(-begin_ms // every_ms) * every_ms
    return Plot(
        title,
        [
            PlottedLine(name, number, _runs(line, x_of, y_of), unit.of(_newest(line)), unit.of(_highest(line)))
            for number, (name, line) in enumerate(values.items(), 1)
        ],
        [
            (x_of((at_ms - begin_ms) / step_ms), f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M}")
            for at_ms in range(first_ms, begin_ms + count * step_ms, every_ms)
        ],
        [(y_of(mark * step), unit.of(mark * step)) for mark in range(round(top / step) + 1)],
    )


def axis(highest: float, steps: Sequence[float]) -> tuple[float, float]:
    """(distance of the marks, end of the axis): one to four marks above 0."""
    step = next((each for each in steps if each * _MARKS_MAX >= highest), None)
    if step is None:  # beyond the list
        step = -(-highest // _MARKS_MAX // steps[-1]) * steps[-1]
    return step, step * max(1, -(-highest // step))


def _runs(line: Sequence[float | None], x_of: Callable[[float], float], y_of: Callable[[float], float]) -> list[str]:
    """Polylines, one for each run of known values. A value between two gaps is a short line, so that it can be seen."""
    runs: list[list[str]] = [[]]
    for place, value in enumerate(line):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{x_of(place + 0.5)},{y_of(value)}")
            if not len(runs[-1]) > 1 and (place + 1 == len(line) or line[place + 1] is None):
                runs[-1].append(f"{x_of(place + 0.9)},{y_of(value)}")
    return [" ".join(run) for run in runs if run]


def _newest(line: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(line) if value is not None), None)


def _highest(line: Sequence[float | None]) -> float | None:
    return max((value for value in line if value is not None), default=None)


def chosen_range(query: Mapping[str, str]) -> str:
    """The range of the address; the shortest if it names none that there is."""
    name = query.get("range", "")
    return name if name in RANGES else next(iter(RANGES))


_MESSAGES = {"stored": "stored", "delivered": "delivered"}
#: {kind of page: its plots: (title, unit, {line: name})}
_PLOTS: Mapping[str, Sequence[tuple[str, Unit, Mapping[str, str]]]] = {
    "cluster": (
        ("Messages", PER_SECOND, {**_MESSAGES, "acknowledged": "acknowledged"}),
        ("Backlog of all subscriptions", MESSAGES, {"backlog_messages": "messages"}),
        ("Publishing took", MS, {"publish_p50_ms": "p50", "publish_p99_ms": "p99"}),
        ("Received", BYTES_PER_SECOND, {"received_bytes": "bytes"}),
    ),
    "topic": (
        ("Messages", PER_SECOND, _MESSAGES),
        ("Largest backlog", MESSAGES, {"backlog_messages": "messages"}),
    ),
    "subscription": (
        ("Backlog", MESSAGES, {"backlog_messages": "messages"}),
        ("Age of the oldest message", AGE, {"oldest_s": "age"}),
    ),
}


def plots_of(kind: str, history: Mapping[str, Any], range_name: str) -> list[Plot]:
    """kind: of the page, see `_PLOTS`. Those of which anything is known."""
    every_ms = RANGES[range_name][1]
    found = (plot(title, unit, history, lines, every_ms=every_ms) for title, unit, lines in _PLOTS[kind])
    return [each for each in found if each is not None]
