"""The picture that the demo leaves: acknowledged messages over time, with the kills. An SVG for light and dark."""

import math
from collections.abc import Callable, Sequence
from html import escape

from oncelog_lab.demo.timeline import Sample, Timeline

WIDTH, HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 112, 44
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
#: A line has at most one point for each pixel.
_POINTS_MAX = _PLOT_WIDTH

_STYLE = """
svg { --ink: #1f2328; --faint: #59636e; --grid: #d1d9e0; --published: #0969da; --consumed: #1a7f37; --kill: #cf222e;
  --paper: #ffffff; font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #f0f6fc; --faint: #9198a1; --grid: #3d444d; --published: #4493f8;
  --consumed: #3fb950; --kill: #f85149; --paper: #0d1117; } }
.paper { fill: var(--paper); } text { fill: var(--ink); } .faint { fill: var(--faint); } .title { font-weight: 600; }
.grid { stroke: var(--grid); } .kill { stroke: var(--kill); stroke-dasharray: 3 3; } .victim { fill: var(--kill); }
.published, .consumed { fill: none; stroke-linejoin: round; }
.published { stroke: var(--published); stroke-width: 7; opacity: 0.45; }
.consumed { stroke: var(--consumed); stroke-width: 2; }
"""


def demo_plot(timeline: Timeline, title: str) -> str:
    """An SVG document. The victim of each kill stands over its line, by its first letter: the legend says the words.

    An empty timeline gives axes without lines."""
    points = timeline.points()
    seconds_max = max([1.0, *(each.at_s for each in points), *(kill.at_s for kill in timeline.kills)])
    count_max = max([1, *(max(each.published, each.consumed) for each in points)])

    def x(at_s: float) -> float:
        return round(_LEFT + _PLOT_WIDTH * at_s / seconds_max, 1)

    def y(count: float) -> float:
        return round(_TOP + _PLOT_HEIGHT * (1 - count / count_max), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        _text(_LEFT, 28, title, "title"),
        *_legend(timeline),
        *_axes(seconds_max, count_max, x, y),
    ]
    for kill in timeline.kills:
        at = x(kill.at_s)
        parts.append(f'<line class="kill" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_TOP + _PLOT_HEIGHT}"/>')
        parts.append(_text(at, _TOP - 6, kill.victim[:1].upper(), "victim", anchor="middle"))
    parts.append(_line(points, "published", lambda each: (x(each.at_s), y(each.published))))
    parts.append(_line(points, "consumed", lambda each: (x(each.at_s), y(each.consumed))))
    return "\n".join([*parts, "</svg>\n"])


def _legend(timeline: Timeline) -> list[str]:
    victims = dict.fromkeys(kill.victim for kill in timeline.kills)
    letters = ", ".join(f"{victim[:1].upper()} {victim}" for victim in victims)
    row = 54
    parts = [
        f'<line class="published" x1="{_LEFT}" x2="{_LEFT + 22}" y1="{row - 4}" y2="{row - 4}"/>',
        _text(_LEFT + 28, row, "acknowledged to the producer"),
        f'<line class="consumed" x1="{_LEFT + 260}" x2="{_LEFT + 282}" y1="{row - 4}" y2="{row - 4}"/>',
        _text(_LEFT + 288, row, "acknowledged by the consumers"),
    ]
    return [*parts, _text(_LEFT, row + 22, f"kill -9: {letters}", "victim")] if letters else parts


def _axes(seconds_max: float, count_max: int, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    parts = []
    for count in _steps(count_max, 5):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(count)}" y2="{y(count)}"/>')
        parts.append(_text(_LEFT - 8, y(count) + 4, f"{count:,.0f}", "faint", anchor="end"))
    row = HEIGHT - _BOTTOM + 18
    seconds = (_text(x(at_s), row, f"{at_s:g} s", "faint", anchor="middle") for at_s in _steps(seconds_max, 8))
    return [*parts, *seconds]


def _steps(largest: float, wanted: int) -> list[float]:
    """0 and the multiples of 1, 2 or 5 times a power of ten up to `largest`, about `wanted` of them."""
    least = max(largest / wanted, 1.0)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    return [step * number for number in range(int(largest / step) + 1)]


def _line(points: Sequence[Sample], kind: str, place: Callable[[Sample], tuple[float, float]]) -> str:
    stride = max(1, math.ceil(len(points) / _POINTS_MAX))
    chosen = [*points[::stride], *points[-1:]]
    path = " ".join("{:g},{:g}".format(*place(each)) for each in chosen)
    return f'<polyline class="{kind}" points="{path}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{escape(words)}</text>'
