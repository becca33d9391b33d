"""Numbers as the geometry of SVG: the templates draw it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any


def lines(values: Sequence[float | None], *, width: float = 120, height: float = 24) -> list[str]:
    """The `points` of polylines: one for each run without an unknown value. The lowest edge is 0."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    top, step = max(*known, 1e-9), width / max(len(values) - 1, 1)
    runs: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            x, y = place * step, f"{height - 1 - value / top * (height - 2):.1f}"
            # Each value is a short line, so that one between two gaps can be seen, too.
            runs[-1] += [f"{max(x - 1, 0):.1f},{y}", f"{min(x + 1, width):.1f},{y}"]
    return [" ".join(run) for run in runs if run]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a strip. x, width: of 1,000. state: its CSS class, good, warn, bad, off or unknown. title: in words."""

    x: float
    width: float
    state: str
    title: str


def strip(parts: Iterable[tuple[float, str, str]], *, least: float = 4.0) -> list[Piece]:
    """The pieces of a strip, in order. parts: (size, state, title). least: the width of a small part, so that each
    can be seen."""
    given = list(parts)
    if not given:
        return []
    least = min(least, 1_000 / len(given))
    total = sum(size for size, _, _ in given) or 1.0
    widths = [max(least, size / total * 1_000) for size, _, _ in given]
    scale, x, pieces = 1_000 / sum(widths), 0.0, list[Piece]()
    for width, (_, state, title) in zip(widths, given, strict=True):
        pieces.append(Piece(round(x, 2), round(width * scale, 2), state, title))
        x += width * scale
    return pieces


def ack_parts(acks: Mapping[str, Any]) -> Iterator[tuple[float, str, str]]:
    """The parts of a strip from an answer of `ackState`; neighbours of the same state are one part. good: all is
    acknowledged; off: nothing is, and no consumer has any; warn: between."""
    first, size, next_index = acks["first"], acks["bucket_messages"], acks["next"]
    buckets = list(enumerate(acks["buckets"]))

    def state_of(numbered: tuple[int, dict[str, int]]) -> str:
        number, bucket = numbered
        count = min(size, next_index - first - number * size)
        if bucket["acknowledged"] == count:
            return "good"
        return "warn" if bucket["acknowledged"] + bucket["in_flight"] else "off"

    for state, run in groupby(buckets, state_of):
        same = list(run)
        begin, end = first + same[0][0] * size, min(next_index, first + (same[-1][0] + 1) * size)
        acked, held = (sum(bucket[name] for _, bucket in same) for name in ("acknowledged", "in_flight"))
        yield end - begin, state, f"{begin} to {end - 1}: {acked} acknowledged, {held} with consumers, of {end - begin}"
