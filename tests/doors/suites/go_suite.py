"""The tests of Pulsar's Go client, compiled as they are: python -m tests.doors.suites.go_suite [--only WORD].

They speak to localhost:6650, and to REST at localhost:8080, so both ports must be free. `go_left_out.txt` names the
tests that are not run, each with the reason. Every other one must pass.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster

HERE = Path(__file__).parent
MODULE = "github.com/apache/pulsar-client-go"
#: What Go has fetched and built is kept there.
KEPT = HERE.parents[2] / "build/pulsar_clients"
#: Else Go would put read-only files into the home of whoever runs the tests.
GO = {"GOMODCACHE": str(KEPT / "go-modules"), "GOCACHE": str(KEPT / "go-built"), "GOFLAGS": "-modcacherw"}
PORT, REST_PORT = 6650, 8080
BUILD_S = 1_800
#: Of one test; the slowest ones wait for 30 s of the client's own.
TEST_S = 120


def left_out() -> dict[str, str]:
    """{name of a test: why it is not run}."""
    lines = (HERE / "go_left_out.txt").read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(pair for pair in pairs)


def built(directory: Path) -> tuple[Path, Path]:
    """The compiled tests, and the folder that they expect to be started in."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("the go command is missing: install Go 1.24 or a newer one")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, directory)
    (directory / "suite_test.go").write_text(f'package suite\n\nimport _ "{MODULE}/pulsar"\n')
    environment = os.environ | GO
    program = directory / "pulsar.test"
    words = [go, "test", "-c", "-o", str(program), f"{MODULE}/pulsar"]
    subprocess.run(words, cwd=directory, env=environment, check=True, timeout=BUILD_S)
    words = [go, "list", "-m", "-f", "{{.Dir}}", MODULE]
    found = subprocess.run(words, cwd=directory, env=environment, check=True, capture_output=True, text=True)
    return program, Path(found.stdout.strip()) / "pulsar"


def names_of(program: Path, folder: Path) -> list[str]:
    listed = subprocess.run([program, "-test.list", ".*"], cwd=folder, check=True, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line.startswith("Test")]


def run(program: Path, folder: Path, name: str, log: Path) -> bool:
    words = [str(program), "-test.run", f"^{name}$", "-test.timeout", f"{TEST_S}s"]
    with log.open("wb") as output:
        done = subprocess.run(
            guarded(words), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="the tests with this word in their names")
    only = parser.parse_args().only
    reasons = left_out()
    logs = KEPT / "go-suite"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as own:
        directory = Path(own)
        program, folder = built(directory)
        names = names_of(program, folder)
        unknown = sorted(set(reasons) - set(names))
        if unknown:
            raise SystemExit(f"go_left_out.txt names tests that do not exist: {', '.join(unknown)}")
        chosen = [name for name in names if name not in reasons and only in name]
        failed: list[str] = []
        with Cluster.running(directory, pulsar_port=PORT, pulsar_rest_port=REST_PORT):
            for number, name in enumerate(chosen, 1):
                began = time.monotonic()
                passed = run(program, folder, name, logs / f"{name}.log")
                failed += [] if passed else [name]
                word = "passed" if passed else "FAILED"
                print(f"{number} of {len(chosen)}  {name} {word}  {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed, {len(reasons)} left out (go_left_out.txt)")
    for name in failed:
        print(f"failed: {name} ({logs / name}.log)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
