"""The picture of an audit: an SVG with a panel for each topic, what happened over the time of its log.

Bars: messages stored, duplicates refused, producers opened, each on its own scale. Dashed lines: takeovers.
"""

import io
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure, FigureBase

from oncelog.core.counted import counted

_COLOURS = {"good": "#1a7f37", "violations": "#c0392b", "incomplete": "#9a6700"}
_LANES = (
    ("stored", "messages stored", "#4c78a8"),
    ("duplicates_refused", "duplicates refused (in the log)", "#e45756"),
    ("producers_opened", "producers opened", "#72b7b2"),
)
_TAKEOVER = "#6f42c1"
_PANEL_INCHES = (9.6, 3.6)

Json = Mapping[str, Any]


def chart_of(report: Json) -> str:
    """The SVG of a whole report. Equal reports give equal pictures."""
    topics = report["topics"]
    width, height = _PANEL_INCHES
    figure = Figure((width, height * max(1, len(topics))), layout="constrained")
    if topics:
        for panel, topic in zip(figure.subfigures(len(topics), squeeze=False)[:, 0], topics, strict=True):
            _draw(panel, topic)
    svg = io.StringIO()
    # Text stays text, and nothing of the time or of chance gets in.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "oncelog"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()


def _draw(panel: FigureBase, topic: Json) -> None:
    panel.suptitle(f"{topic['topic']}: {topic['verdict']}", color=_COLOURS[topic["verdict"]], parse_math=False)
    timeline = topic["timeline"]
    if timeline is None:
        panel.text(0.5, 0.5, "nothing is stored", ha="center")
        return
    first_ms, last_ms = timeline["first_ms"], max(timeline["last_ms"], timeline["first_ms"] + 1)
    lanes = panel.subplots(len(_LANES), sharex=True)
    for axes, (name, label, colour) in zip(lanes, _LANES, strict=True):
        counts = timeline[name]
        edges = np.linspace(first_ms, last_ms, len(counts) + 1).astype("datetime64[ms]")
        axes.stairs(counts, edges, fill=True, color=colour)
        axes.set_title(f"{label}: {sum(counts):,} in all, highest bar {max(counts):,}", loc="left", fontsize="small")
        axes.set_yticks([])
        for takeover in topic["takeovers"]:
            axes.axvline(np.datetime64(takeover["time_ms"], "ms"), color=_TAKEOVER, linestyle="--", linewidth=1)
    locator = AutoDateLocator(maxticks=8)
    lanes[-1].xaxis.set_major_locator(locator)
    lanes[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))
    facts = ", ".join(
        (
            counted(topic["messages"], "message"),
            counted(topic["entries"], "entry", "entries"),
            counted(topic["producers"], "producer"),
            _takeovers(topic["takeovers"]),
        )
    )
    panel.supxlabel(f"{facts}; up to {topic['end']['position']}; times in UTC", fontsize="small")


def _takeovers(takeovers: list[Json]) -> str:
    if not takeovers:
        return "no takeover"
    newest = max(takeover["owner_epoch"] for takeover in takeovers)
    return f"{counted(len(takeovers), 'takeover')} (dashed, newest owner epoch {newest})"
