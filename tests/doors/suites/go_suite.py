"""The tests of Pulsar's Go client, compiled as they are: python -m tests.doors.suites.go_suite [--only WORD ...].

They speak to localhost:6650, and to REST at localhost:8080, so both ports must be free. `go_left_out.txt` names the
tests that are not run, each with the reason. Every other one must pass.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.doors.clients.go_programs import go_variables
from tests.doors.suites.suite_run import HERE, KEPT, Suite, door, parser, run_program

MODULE = "github.com/apache/pulsar-client-go"
BUILD_S = 1_800
#: Of one test; the slowest ones wait for 30 s of the client's own.
TEST_S = 120


def built(directory: Path) -> tuple[Path, Path]:
    """The compiled tests, and the folder that they expect to be started in."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("the go command is missing: install Go 1.24 or a newer one")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, directory)
    (directory / "suite_test.go").write_text(f'package suite\n\nimport _ "{MODULE}/pulsar"\n')
    environment = os.environ | go_variables(KEPT)
    program = directory / "pulsar.test"
    words = [go, "test", "-c", "-o", str(program), f"{MODULE}/pulsar"]
    subprocess.run(words, cwd=directory, env=environment, check=True, timeout=BUILD_S)
    words = [go, "list", "-m", "-f", "{{.Dir}}", MODULE]
    found = subprocess.run(words, cwd=directory, env=environment, check=True, capture_output=True, text=True)
    return program, Path(found.stdout.strip()) / "pulsar"


def names_of(program: Path, folder: Path) -> list[str]:
    listed = subprocess.run([program, "-test.list", ".*"], cwd=folder, check=True, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line.startswith("Test")]


def main() -> int:
    only = parser(__doc__).parse_args().only
    with tempfile.TemporaryDirectory() as directory:
        program, folder = built(Path(directory))
        suite = Suite("go", names_of(program, folder))

        def outcome(name: str, log: Path) -> dict[str, bool]:
            words = [str(program), "-test.run", f"^{name}$", "-test.timeout", f"{TEST_S}s"]
            # The program ends itself, and says where it hangs.
            return {name: run_program(words, folder, log, seconds=2 * TEST_S) == 0}

        with door():
            return suite.run(suite.chosen(only), outcome)


if __name__ == "__main__":
    sys.exit(main())
