"""The loads of a comparison, and which runs of a client count.

A client runs a load again and again. Its runs warm it up until three in a row differ by less than 5 %; the next three
are measured. A client that is not steady after a number of runs (`--warm-up-runs`) is measured all the same, and its
figure is marked. Every client is measured in two orders of the systems, so that a machine that becomes slower slows all
of them.

Figures of a run: messages a second, or the percentiles of the latency. The first one decides whether a client is
steady.
"""

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

#: The figures of one run.
Run = tuple[float, ...]

STEADY_RUNS = 3
STEADY_RATIO_MAX = 1.05
#: By default.
WARM_UP_RUNS_MAX = 12
MEASURED_RUNS = 3
#: Of the load `latency`.
MESSAGES_PER_S = 200


class PeerLoad(StrEnum):
    """In the order in which they run; the values are those of --only."""

    CALLBACKS = "callbacks"
    FUTURES = "futures"
    LISTS = "lists"
    LISTS_1K = "lists-1k"
    READ_1K = "read-1k"
    READ_BATCHES = "read-batches"
    READ_OBJECTS = "read-objects"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class LoadShape:
    """what: the row of the table. messages: in the topic that is read; 0 where nothing is read. figures: of a run."""

    what: str
    message_bytes: int = 100
    messages: int = 0
    figures: tuple[str, ...] = ("",)
    unit: str = "msg/s"


SHAPES = {
    PeerLoad.CALLBACKS: LoadShape("publish 100 B, a callback for each message"),
    PeerLoad.FUTURES: LoadShape("publish 100 B, a future for each message"),
    PeerLoad.LISTS: LoadShape("publish 100 B, in lists"),
    PeerLoad.LISTS_1K: LoadShape("publish 1 KiB, in lists", 1024),
    PeerLoad.READ_1K: LoadShape("read 1 KiB right after it was written, in batches", 1024, 200_000),
    PeerLoad.READ_BATCHES: LoadShape("read 100 B, in batches", messages=1_000_000),
    PeerLoad.READ_OBJECTS: LoadShape("read 100 B, one object for each message", messages=1_000_000),
    PeerLoad.LATENCY: LoadShape("a message of 100 B each 5 ms", figures=(", p50", ", p99"), unit="ms"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """A client that runs a load until it is killed, or once; then it is started again. line: what it prints after a
    run, with a group for each figure."""

    client: str
    command: tuple[str, ...]
    line: re.Pattern[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one client did in one order. steady: whether its last runs before the measured ones were."""

    warm_up: tuple[Run, ...]
    runs: tuple[Run, ...]
    steady: bool


def is_steady(runs: Sequence[Run]) -> bool:
    """Whether the last runs differ by less than 5 %."""
    last = [run[0] for run in runs[-STEADY_RUNS:]]
    return len(last) == STEADY_RUNS and max(last) < STEADY_RATIO_MAX * min(last)


def measured_of(runs: Sequence[Run], warm_up_runs: int = WARM_UP_RUNS_MAX) -> Measured | None:
    """runs: all so far. warm_up_runs: at most, if they are never steady. None: more are needed."""
    steady_after = (count for count in range(STEADY_RUNS, warm_up_runs) if is_steady(runs[:count]))
    warm = next(steady_after, warm_up_runs)
    if len(runs) < warm + MEASURED_RUNS:
        return None
    return Measured(tuple(runs[:warm]), tuple(runs[warm : warm + MEASURED_RUNS]), is_steady(runs[:warm]))


def medians(runs: Sequence[Run]) -> Run:
    """Of each figure."""
    return tuple(statistics.median(figures) for figures in zip(*runs, strict=True))


def run_line(run: Run) -> str:
    """What a client of this package prints after each run."""
    return json.dumps({"run": run})


#: A number, in a line of a tool.
NUMBER = r"\s*([\d.]+)"
_RUN_LINE = re.compile(rf'\{{"run": \[{NUMBER}(?:, {NUMBER})?\]\}}')


def parse_line(pattern: re.Pattern[str], line: str) -> Run | None:
    """The groups of the pattern that a line has, as figures; None for a line that does not fit."""
    found = pattern.search(line)
    return None if found is None else tuple(float(group) for group in found.groups() if group is not None)


def python_program(
    client: str, command: tuple[str, ...], load: PeerLoad, seconds: float, messages: int | None = None
) -> Program:
    """A client of this package. messages: to read, by default those of the load."""
    count = SHAPES[load].messages if messages is None else messages
    return Program(client, (*command, load, str(seconds), str(count)), _RUN_LINE)
