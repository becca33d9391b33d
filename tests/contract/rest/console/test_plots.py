"""Plots: their axes, units, gaps and ranges, and what a page says of a history that is shorter than its range."""

import re
from typing import Any

import pytest

from oncelog.metadata.console.plots import (
    AGE,
    BYTES_PER_SECOND,
    MESSAGES,
    PER_SECOND,
    RANGES,
    Unit,
    axis,
    plot,
    plots_of,
)
from oncelog.metadata.observing.history import LINES, SAMPLE_MS, wall_ms
from oncelog.metadata.rest.observing.history import RANGES as RANGES_OF_REST
from tests.contract.rest.admin.admin_world import FLIGHTS
from tests.contract.rest.console.console_world import block_of, serving, text_of
from tests.contract.rest.observing.test_history import busy

MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_040_000  # 22:14:00


def history(**lines: list[float | None]) -> dict[str, Any]:
    return {"begin_ms": BEGIN_MS, "step_ms": MINUTE_MS, "lines": lines}


@pytest.mark.parametrize(
    ("highest", "unit", "marks"),
    [
        (16_200, MESSAGES, ["0", "5 000", "10 000", "15 000", "20 000"]),
        (1, MESSAGES, ["0", "1"]),
        (0.35, PER_SECOND, ["0/s", "0.1/s", "0.2/s", "0.3/s", "0.4/s"]),
        (3 << 20, BYTES_PER_SECOND, ["0 B/s", "1.0 MiB/s", "2.0 MiB/s", "3.0 MiB/s"]),
        (400, AGE, ["0 s", "2 min", "4 min", "6 min", "8 min"]),
        (55, AGE, ["0 s", "15 s", "30 s", "45 s", "1 min"]),
        (50_000, AGE, ["0 s", "6 h", "12 h", "18 h"]),
        (3e5, AGE, ["0 s", "1 d", "2 d", "3 d", "4 d"]),
    ],
)
def test_axis_of_values_has_round_marks(highest: float, unit: Unit, marks: list[str]) -> None:
    """One to four of them above 0, the highest not below the values."""
    step, top = axis(highest, unit.steps)
    assert top >= highest
    found = [unit.of(step * mark) for mark in range(round(top / step) + 1)]
    assert [re.sub(r"\s", " ", each) for each in found] == marks


def test_line_has_gaps_and_marks_of_time() -> None:
    """A value between two gaps can be seen; the marks are at full quarters of an hour."""
    line: list[float | None] = [None, 2.0, 4.0, None, 1.0, None]
    drawn = plot("Messages", PER_SECOND, history(a=[*line, *[None] * 24]), {"a": "stored"}, every_ms=15 * MINUTE_MS)
    assert drawn is not None
    (only,) = drawn.lines
    assert [len(run.split()) for run in only.runs] == [2, 2]
    assert (only.newest, only.highest, only.number) == ("1/s", "4/s", 1)
    assert [text for _, text in drawn.times] == ["22:15", "22:30"]
    assert drawn.label == "Messages: stored now 1/s, at most 4/s"
    assert plot("Messages", PER_SECOND, history(a=[None] * 3), {"a": "stored"}, every_ms=MINUTE_MS) is None


def test_pages_and_rest_have_the_same_ranges_and_lines() -> None:
    """A line that a plot names is one that is kept."""
    assert RANGES.keys() == RANGES_OF_REST.keys()
    for kind, lines in LINES.items():
        shown = plots_of(kind, {**history(), "lines": {line: [1.0] for line in lines}}, "1h")
        assert sum(len(each.lines) for each in shown) == len(lines), kind


@pytest.mark.asyncio
async def test_page_shows_plots_of_the_range_in_its_address() -> None:
    """And from when on the service that answers has sampled, if that is shorter."""
    async with serving() as console:
        owner = await console.admin.owner()
        page = block_of(await console.page("/console/"), "plots")
        assert "Nothing is known yet" in text_of(page)
        await console.admin.change("PUT", FLIGHTS)
        sampler, now_ms = console.admin.replica.coordination.history, wall_ms()
        owner.samples = busy(3, 16_200)
        for back in (2, 1, 0):
            await sampler.sample(now_ms=now_ms - back * SAMPLE_MS)
        page = block_of(await console.page("/console/?range=1h"), "plots")
        assert 'aria-label="Messages: stored now 3/s, at most 3/s; delivered now 6/s, at most 6/s' in page
        assert "has sampled since" in text_of(page)
        assert "Each place is 1 min wide" in text_of(page)
        assert '<strong aria-current="true">1 hour</strong>' in page
        assert 'href="/console/?range=24h"' in page
        topic = block_of(await console.page("/console/topics/public/default/flights"), "plots")
        assert "Largest backlog" in text_of(topic)
        subscription = "/console/topics/public/default/flights/subscriptions/billing?range=24h"
        assert "Backlog messages 16 200" in text_of(block_of(await console.page(subscription), "plots"))
