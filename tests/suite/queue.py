"""Which part of the suite runs next, and how long each took when it ran last.

Two kinds of parts share the machine: one that computes keeps a core busy, one that waits uses a third of one, because
it mostly waits for processes that it has started. So beside each part that computes there are four that wait, for two
cores: both kinds then end at about the same time, and until then no core is idle. When none is left that waits, a part
computes on each core. The longest part of its kind begins first, or the suite would end with one part that runs alone.

The seconds of each part are kept in a file. A part that has not run here is taken to be as long as `parts.py` says.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.suite.parts import Part

#: More places would need more memory than most machines have: a cluster of a test takes up to 1 GB.
CORES_MAX = 4


class Places(NamedTuple):
    """total: how many parts run at once. computing: how many of them are kept for those that compute. cores: how many
    compute when no part is left that waits."""

    computing: int
    total: int
    cores: int

    @classmethod
    def of_this_machine(cls) -> "Places":
        cores = min(len(os.sched_getaffinity(0)), CORES_MAX)
        return cls(computing=max(1, cores // 2), total=2 * cores + 1, cores=cores)


def next_part(waiting: Sequence[Part], running: Collection[Part], places: Places) -> Part | None:
    """The part to begin now; None: no place is free for any. waiting: in the order of `longest_first`."""
    computing = sum(part.computes for part in running)
    kept = min(places.computing, computing + sum(part.computes for part in waiting))
    allowed = places.cores if all(part.computes for part in waiting) else places.computing
    for part in waiting:
        if part.computes:
            free = computing < allowed and len(running) < places.total
        else:
            free = len(running) - computing < places.total - kept
        if free:
            return part
    return None


def longest_first(parts: Sequence[Part], seconds: Mapping[str, float]) -> list[Part]:
    """seconds: {name: what the part took last}."""
    return sorted(parts, key=lambda part: -seconds.get(part.name, part.seconds))


class Measured(NamedTuple):
    """What a part took. cpu_seconds: of its processes that had ended before it."""

    seconds: float
    cpu_seconds: float


def read_seconds(path: Path) -> dict[str, Measured]:
    """{name: of its last run that passed}; {} without a readable file, because the order is all that it decides."""
    try:
        found = json.loads(path.read_text())
        return {name: Measured(float(one["seconds"]), float(one["cpu_seconds"])) for name, one in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def keep_seconds(path: Path, measured: Mapping[str, Measured]) -> None:
    """Replace those of the parts in `measured`, and keep the others."""
    kept = {**read_seconds(path), **measured}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: kept[name]._asdict() for name in sorted(kept)}, indent=1)
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(text + "\n")
    written.replace(path)
