"""Plot: a picture of what things cost against their number, from the JSON of several runs of a benchmark.

A row that was measured with so many topics or producers says so ("at": {"topics": 1000}). The rows of one name become
one curve. Both axes are logarithmic.
"""

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from oncelog_lab.failures import LabFailed

_PANEL_INCHES = (4.8, 3.2)
_COLUMNS = 2


class Curve(NamedTuple):
    """of: what is counted on the horizontal axis. points: (count, figure), ascending."""

    what: str
    unit: str
    of: str
    points: tuple[tuple[float, float], ...]


def plot(files: Iterable[Path], picture: Path) -> list[Curve]:
    """Draw the curves of all files into an SVG.

    Raises LabFailed if a file is not the output of a benchmark, if no row has a count, or if the picture cannot be
    written.
    """
    curves = curves_of([row for file in files for row in _rows(file)])
    if not curves:
        raise LabFailed("no row of these files was measured at a number of topics or producers")
    try:
        picture.write_text(_drawn(curves))
    except OSError as error:
        raise LabFailed(f"cannot write {picture}: {error.strerror}") from error
    return curves


def curves_of(rows: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """Several figures at one count are averaged. Figures of 0 have no place on a logarithmic axis and are left out."""
    found: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for row in rows:
        for of, count in (row.get("at") or {}).items():
            if row["figure"]:
                found.setdefault((row["what"], row["unit"], of), {}).setdefault(count, []).append(row["figure"])
    return [
        Curve(*name, tuple((count, sum(each) / len(each)) for count, each in sorted(points.items())))
        for name, points in found.items()
    ]


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: Any
    try:
        rows = json.loads(file.read_text())["rows"]
        if not all(isinstance(row, dict) and {"what", "figure", "unit"} <= row.keys() for row in rows):
            raise TypeError
    except OSError as error:
        raise LabFailed(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LabFailed(f"{file} is not the output of `oncelog bench … -o json`") from error
    return list(rows)


def _drawn(curves: list[Curve]) -> str:
    width, height = _PANEL_INCHES
    lines = -(-len(curves) // _COLUMNS)
    figure = Figure((width * _COLUMNS, height * lines), layout="constrained")
    panels = figure.subplots(lines, _COLUMNS, squeeze=False)
    for axes, curve in zip(panels.flat, curves, strict=False):
        axes.loglog(*zip(*curve.points, strict=True), marker="o", markersize=4)
        axes.set_title(curve.what, fontsize="small")
        axes.set_xlabel(curve.of, fontsize="small")
        axes.set_ylabel(curve.unit, fontsize="small")
        axes.grid(visible=True, which="major", alpha=0.3)
    for axes in panels.flat[len(curves) :]:
        axes.set_visible(False)
    svg = io.StringIO()
    # Text stays text, and nothing of the time or of chance gets in.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "oncelog"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()
