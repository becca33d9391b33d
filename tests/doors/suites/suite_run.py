"""What the runners of clients' own suites share: the tests that are left out, a door where they expect a broker, and
what is printed.

A list of tests that are left out has a line `NAME why` for each. A name that stands for no test is an error, so the
list says what the suite has.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import Cluster

HERE = Path(__file__).parent
#: What is fetched and built is kept there, and what the tests print.
KEPT = HERE.parents[2] / "build/pulsar_clients"
KAFKA_KEPT = HERE.parents[2] / "build/kafka_clients"
#: Where Pulsar's tests expect a broker and its REST.
PORT, REST_PORT = 6650, 8080


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="run the tests with a word in their names"
    )
    return made


class Suite:
    """One suite: the names of its tests, and those that are left out."""

    def __init__(self, language: str, names: Sequence[str], *, groups: Sequence[str] = (), kept: Path = KEPT) -> None:
        """groups: names that stand for all tests `GROUP.test` in the list of what is left out. kept: where its logs
        are."""
        self._list = HERE / f"{language}_left_out.txt"
        self._names = names
        self._reasons = _reasons(self._list)
        self._logs = kept / f"{language}-suite"
        self._logs.mkdir(parents=True, exist_ok=True)
        unknown = sorted(set(self._reasons) - set(names) - set(groups))
        if unknown:
            raise SystemExit(f"{self._list.name} names tests that do not exist: {', '.join(unknown)}")

    def chosen(self, only: Sequence[str]) -> list[str]:
        """The tests that are run. only: one of these words is in their names."""
        return [name for name in self._names if any(word in name for word in only) and not self._left_out(name)]

    def _left_out(self, name: str) -> bool:
        return name in self._reasons or name.rpartition(".")[0] in self._reasons

    def run(self, units: Sequence[str], outcomes_of: "OutcomesOf", *, at_once: int = 1) -> int:
        """Run each unit, which is a test or several, some at once. Returns the exit status.

        Some tests wait for a tenth of a second only, so a unit that fails gets a second attempt, when all have run.
        """
        passed = self._attempt(units, outcomes_of, at_once, attempt=1)
        again = [unit for unit, outcomes in passed.items() if not all(outcomes.values())]
        passed |= self._attempt(again, outcomes_of, 1, attempt=2)
        tests = {name: good for outcomes in passed.values() for name, good in outcomes.items()}
        failed = [name for name, good in tests.items() if not good]
        left_out = sum(map(self._left_out, self._names))
        counts = f"{len(tests) - len(failed)} passed, {len(failed)} failed, {left_out} left out ({self._list.name})"
        print(f"{counts}; {len(again)} had a second attempt: {', '.join(again) or 'none'}")
        for name in failed:
            print(f"failed: {name} (logs in {self._logs})")
        return 1 if failed or not tests else 0

    def _attempt(
        self, units: Sequence[str], outcomes_of: "OutcomesOf", at_once: int, *, attempt: int
    ) -> dict[str, Mapping[str, bool]]:
        ended = count(1)

        def one(unit: str) -> Mapping[str, bool]:
            began = time.monotonic()
            outcomes = outcomes_of(unit, self._logs / f"{unit}-{attempt}.log")
            failed = [name for name, good in outcomes.items() if not good]
            word = f"FAILED {', '.join(failed)}" if failed else "passed"
            print(f"{next(ended)} of {len(units)}  {unit} {word}  {time.monotonic() - began:.1f} s", flush=True)
            return outcomes

        with ThreadPoolExecutor(at_once) as threads:
            return dict(zip(units, threads.map(one, units), strict=True))


#: {test: whether it has passed} of a unit, with the file for what it prints.
OutcomesOf = Callable[[str, Path], Mapping[str, bool]]


def _reasons(path: Path) -> dict[str, str]:
    """{name of a test: why it is not run}."""
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split(maxsplit=1) for line in lines)


@contextmanager
def door() -> Iterator[Cluster]:
    """A cluster with a door where the tests expect a broker. Both ports must be free."""
    with (
        tempfile.TemporaryDirectory() as own,
        Cluster.running(Path(own), pulsar_port=PORT, pulsar_rest_port=REST_PORT) as cluster,
    ):
        yield cluster


@contextmanager
def kafka_door(**settings: int) -> Iterator[tuple[Cluster, str]]:
    """A cluster with a door for clients of Kafka, and HOST:PORT of the door. settings: of the services."""
    with (
        claim_port("127.0.0.1") as claim,
        tempfile.TemporaryDirectory() as own,
        Cluster.running(Path(own), kafka_port=port_of(claim), **settings) as cluster,
    ):
        yield cluster, str(cluster.status()["kafka_servers"])


def run_command(cluster: Cluster, *words: str) -> None:
    """`oncelog admin` with these words."""
    done = cluster.run("admin", *words)
    assert done.returncode == 0, done.stderr


def run_program(
    words: Sequence[str], folder: Path, log: Path, *, seconds: float, variables: Mapping[str, str] | None = None
) -> int | None:
    """The exit status of a program, which writes into the log; None: it was killed after these seconds. variables: of
    its environment, beside our own."""
    with log.open("wb") as output:
        try:
            return subprocess.run(
                guarded([shutil.which(words[0]) or words[0], *words[1:]]),
                cwd=folder,
                env=os.environ | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None
