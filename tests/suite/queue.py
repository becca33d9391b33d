"""Which part of the suite runs next, and how long each took when it ran last.

Two kinds of parts share the machine: one that computes keeps a core busy, one that waits mostly waits for processes
that it has started. Twice as many run at once as there are cores, and as many of them as there are cores compute while
any such part is left. More at once would not end earlier: beside six parts on two cores each needs a third more CPU
than beside four. The longest part of its kind begins first, or the suite would end with one part that runs alone.

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
    """total: how many parts run at once. computing: how many of them are kept for those that compute."""

    computing: int
    total: int

    @classmethod
    def of_this_machine(cls) -> "Places":
        cores = min(len(os.sched_getaffinity(0)), CORES_MAX)
        return cls(computing=cores, total=2 * cores)


def next_part(waiting: Sequence[Part], running: Collection[Part], places: Places) -> Part | None:
    """The part to begin now; None: no place is free for any. waiting: in the order of `longest_first`."""
    computing = sum(part.computes for part in running)
    kept = min(places.computing, computing + sum(part.computes for part in waiting))
    for part in waiting:
        if computing < places.computing if part.computes else len(running) - computing < places.total - kept:
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
