"""The picture of an audit: an SVG with a panel for each topic, what happened over the time of its log. Pure.

Bars: messages stored, duplicates refused, producers opened, each against its own highest bar. Lines: takeovers.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from oncelog.pipeline.job_progress import counted

WIDTH = 960
_LEFT, _RIGHT, _TOP = 210, 24, 64
_LANE = 44
_GAP = 12
_AXIS = 52
_COLOURS = {"good": "#1a7f37", "violations": "#c0392b", "incomplete": "#9a6700"}
_LANES = (
    ("stored", "messages stored", "#4c78a8"),
    ("duplicates_refused", "duplicates refused (in the log)", "#e45756"),
    ("producers_opened", "producers opened", "#72b7b2"),
)
_TAKEOVER = "#6f42c1"
_PANEL = _TOP + len(_LANES) * (_LANE + _GAP) + _AXIS

Json = Mapping[str, Any]


def picture_of(report: Json) -> str:
    """The SVG of a whole report."""
    topics: Sequence[Json] = report["topics"]
    height = max(1, len(topics)) * _PANEL
    panels = "".join(
        f'<g transform="translate(0 {number * _PANEL})">{_panel(topic)}</g>' for number, topic in enumerate(topics)
    )
    style = "text{font:12px sans-serif;fill:#333}.t{font-size:15px;font-weight:bold}.s{font-size:11px;fill:#666}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>{panels}</svg>\n'
    )


def _panel(topic: Json) -> str:
    verdict = topic["verdict"]
    said = ", ".join(
        (
            counted(topic["messages"], "message"),
            counted(topic["entries"], "entry", "entries"),
            counted(topic["producers"], "producer"),
        )
    )
    head = (
        f'<text class="t" x="16" y="28">{escape(topic["topic"])}</text>'
        f'<text x="{WIDTH - _RIGHT}" y="28" text-anchor="end" style="fill:{_COLOURS[verdict]};font-weight:bold">'
        f"{escape(verdict)}</text>"
        f'<text class="s" x="16" y="46">{escape(said)}; up to {escape(topic["end"]["position"])}</text>'
    )
    timeline = topic["timeline"]
    if timeline is None:
        return head + f'<text x="{_LEFT}" y="{_TOP + _LANE}">nothing is stored</text>'
    lanes = [
        _lane(label, colour, timeline[name], _TOP + number * (_LANE + _GAP))
        for number, (name, label, colour) in enumerate(_LANES)
    ]
    return head + "".join(lanes) + _takeovers(topic, timeline) + _axis(timeline)


def _lane(label: str, colour: str, counts: Sequence[int], top: int) -> str:
    highest, bottom = max(1, *counts), top + _LANE
    width = (WIDTH - _LEFT - _RIGHT) / len(counts)
    bars = "".join(
        f'<rect x="{_LEFT + number * width:.1f}" y="{bottom - max(1.5, _LANE * count / highest):.1f}" '
        f'width="{max(1.0, width - 1):.1f}" height="{max(1.5, _LANE * count / highest):.1f}" fill="{colour}"/>'
        for number, count in enumerate(counts)
        if count
    )
    return (
        f'<text x="16" y="{top + 18}">{escape(label)}</text>'
        f'<text class="s" x="16" y="{top + 34}">{sum(counts):,} in all, highest bar {max(counts):,}</text>'
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}" stroke="#ccc"/>{bars}'
    )


def _takeovers(topic: Json, timeline: Json) -> str:
    bottom = _TOP + len(_LANES) * (_LANE + _GAP)
    marks: list[str] = []
    for takeover in topic["takeovers"]:
        x = _x(takeover["time_ms"], timeline)
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}" stroke="{_TAKEOVER}" '
            f'stroke-dasharray="3 3"><title>takeover: owner epoch {takeover["owner_epoch"]}</title></line>'
        )
    said = f"{counted(len(marks), 'takeover')} (dashed)" if marks else "no takeover"
    return "".join(marks) + f'<text class="s" x="16" y="{bottom + 14}" style="fill:{_TAKEOVER}">{said}</text>'


def _axis(timeline: Json) -> str:
    bottom = _TOP + len(_LANES) * (_LANE + _GAP) + 14
    first, last = timeline["first_ms"], timeline["last_ms"]
    middle = (first + last) // 2
    return "".join(
        f'<text class="s" x="{x}" y="{bottom}" text-anchor="{anchor}">{_time(time_ms)}</text>'
        for x, anchor, time_ms in (
            (_LEFT, "start", first),
            ((_LEFT + WIDTH - _RIGHT) // 2, "middle", middle),
            (WIDTH - _RIGHT, "end", last),
        )
    )


def _x(time_ms: int, timeline: Json) -> float:
    first, last = int(timeline["first_ms"]), int(timeline["last_ms"])
    share = (time_ms - first) / max(1, last - first)
    return _LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT)


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
