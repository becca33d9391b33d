"""The result of a benchmark: rows of figures, each with its limit and its target.

Every figure is the median of its runs. A ratio divides the median of the product by the median of the limits run. Both
alternate within one invocation, so that a slower machine slows both.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class FigureTarget:
    """The target of a row: a lower or upper bound of its ratio or of its figure."""

    bound: float
    at_most: bool = False
    of_ratio: bool = False
    #: name of the limit in the ratio, for people
    of: str = ""

    def met(self, figure: float, ratio: float | None) -> bool:
        value = ratio if self.of_ratio else figure
        if value is None or math.isnan(value):
            return False
        return value <= self.bound if self.at_most else value >= self.bound

    def shown(self, unit: str) -> str:
        sign = "<=" if self.at_most else ">="
        if self.of_ratio:
            return f"{sign} {self.bound:g} x {self.of}".rstrip()
        return f"{sign} {self.bound:,.10g} {unit}"


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One row of the table. limit: the divisor of the ratio. target: None for a figure without a target."""

    what: str
    figure: float
    unit: str
    limit: float | None = None
    target: FigureTarget | None = None
    #: what explains the figure, for the JSON output; `note` is for the table
    detail: dict[str, object] = field(default_factory=dict)
    note: str = ""
    #: how many there were of what the row counts, such as {"topics": 1000}: `oncelog bench plot` draws it
    at: dict[str, int] | None = None

    @property
    def ratio(self) -> float | None:
        return None if not self.limit else self.figure / self.limit

    @property
    def ok(self) -> bool | None:
        return None if self.target is None else self.target.met(self.figure, self.ratio)

    def to_json(self) -> dict[str, object]:
        return {
            "what": self.what,
            "figure": _number(self.figure),
            "unit": self.unit,
            "limit": None if self.limit is None else _number(self.limit),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "reach": None if self.target is None else self.target.shown(self.unit),
            "ok": self.ok,
            "note": self.note,
            "at": self.at,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of one run, in ms."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        ordered = sorted(seconds)
        return cls(percentile(ordered, 0.50) * 1000, percentile(ordered, 0.99) * 1000, ordered[-1] * 1000, len(ordered))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of all values does not exceed. ordered: ascending, not empty."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def rounded(values: Sequence[float], digits: int = 2) -> list[float]:
    """For `detail`."""
    return [round(value, digits) for value in values]


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else round(value, 3)
