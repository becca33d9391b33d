"""`python -m tests.surface DIR [--traces N] [--only PART …]` records the surface of this tree in a new directory."""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import oncelog
from tests.simulation.run import Outcome, run
from tests.simulation.shapes import ACK_SEEDS, CONSUMER_SEEDS, DOOR_SEEDS, LEASE_SEEDS, RESTORE_SEEDS
from tests.surface import described
from tests.surface.described import Files
from tests.surface.encoded import encoded
from tests.surface.scraped import scraped_metrics
from tests.tidy.source import ROOT

#: Parts that need less than a minute, and no cluster.
QUICK: Mapping[str, Callable[[], Files]] = {
    "rest": described.rest,
    "help": described.help_texts,
    "settings": described.setting_names,
    "errors": described.errors,
    "protocols": described.protocols,
    "sdk": described.sdk,
    "metrics": described.declared_metrics,
}


def traces(count: int) -> Files:
    """Hash, steps and counts of runs from every range of seeds that has a world of its own."""
    ranges = {
        "cluster": 0, "acks": ACK_SEEDS, "consumers": CONSUMER_SEEDS, "leases": LEASE_SEEDS, "restores": RESTORE_SEEDS,
        "doors": DOOR_SEEDS,
    }  # fmt: skip
    for name, first in ranges.items():
        yield f"traces/{name}.txt", "\n".join(_trace(run(seed)) for seed in range(first, first + count))


def _trace(outcome: Outcome) -> str:
    counts = " ".join(f"{name}={count}" for name, count in sorted(outcome.counts.items()))
    return f"{outcome.seed} {outcome.trace:08x} {outcome.steps} {outcome.problem or 'passed'} {counts}"


def record(directory: Path, parts: Mapping[str, Callable[[], Files]]) -> None:
    """Write the files of these parts. Raises FileExistsError if the directory has one of them."""
    for name, part in parts.items():
        for path, text in part():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x") as file:
                file.write(text.rstrip("\n") + "\n")
        print(name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.surface", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--traces", type=int, default=30, metavar="N", help="seeds of each kind of run")
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts alone")
    arguments = parser.parse_args()
    if not Path(oncelog.__file__).is_relative_to(ROOT):
        parser.error(f"{oncelog.__file__} is of another tree: set PYTHONPATH={ROOT / 'services'}")
    parts: dict[str, Callable[[], Files]] = {
        **QUICK,
        "chart": described.manifests,
        "encoded": encoded,
        "scraped": scraped_metrics,
        "traces": partial(traces, arguments.traces),
    }
    if arguments.only and (unknown := set(arguments.only) - set(parts)):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(parts)}")
    record(arguments.directory, {name: parts[name] for name in arguments.only or parts})


if __name__ == "__main__":
    main()
