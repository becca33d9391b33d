"""The tests of librdkafka, compiled as they are: python -m tests.doors.suites.librdkafka_suite [--only WORD ...].

A package of npm has librdkafka's sources with its tests. Those that need a broker are run in their authors' quick mode,
each number in a process.
`librdkafka_left_out.txt` names the tests that are not run, each with the reason. Every other one must pass. A test that
skips itself has not passed. The parts of the test of administrators, 0081, are tests here.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from collections import defaultdict
from pathlib import Path

from tests.doors.suites.suite_run import KAFKA_KEPT, Suite, kafka_door, parser, run_command, run_program

#: It has librdkafka 2.15.1.
PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
BUILD_S = 3_600
#: Of one number; the slowest ones wait for minutes.
TEST_S = 900
#: Most of their time they wait.
AT_ONCE = 2
#: What a door answers like: no test for a newer broker is run.
KAFKA = "2.5.0"
#: Of the time that tests wait for something: they expect a machine that does nothing else.
MULTIPLIER = 3
#: A test whose parts are tests here, NAME.PART, and the file that has them.
PARTED = {"0081_admin": "0081-admin.c"}
#: It runs the others.
_DRIVERS = ("do_test_apis",)
#: {scenario: whether topics are created by their first use}
SCENARIOS = {"default": "on", "noautocreate": "off"}
#: Each test has an entry in a table: its name, then its flags. A local one needs no broker.
_ENTRY = re.compile(r"_TEST\(\s*(\w+),\s*([\w |]+)(.*?)\)(?=,\s*(?:_TEST|#|/\*|\{))", re.DOTALL)
_SCENARIO = re.compile(r'\.scenario\s*=\s*"([\w,]+)"')
_PART = re.compile(r"^static void\s(do_test_\w+)\(", re.MULTILINE)
_OUTCOME = re.compile(r"Test (\w+) (PASSED|FAILED|SKIPPED)")


def built() -> Path:
    """The folder with the compiled tests. It is built once."""
    tests = KAFKA_KEPT / "package/deps/librdkafka/tests"
    program = tests / "test-runner"
    if program.exists():
        return tests
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("the npm command is missing: librdkafka's sources come with a package of it")
    KAFKA_KEPT.mkdir(parents=True, exist_ok=True)
    words = [npm, "pack", "--silent", PACKAGE]
    packed = subprocess.run(words, cwd=KAFKA_KEPT, check=True, capture_output=True, text=True, timeout=BUILD_S)
    with tarfile.open(KAFKA_KEPT / packed.stdout.strip()) as archive:
        archive.extractall(KAFKA_KEPT, filter="data")
    log = KAFKA_KEPT / "librdkafka-build.log"
    for folder, command in (
        (tests.parent, ("./configure",)),
        (tests.parent, ("make", "libs")),
        (tests, ("make", "build")),
    ):
        if run_program(command, folder, log, seconds=BUILD_S) != 0:
            raise SystemExit(f"librdkafka could not be built: {log}")
    return tests


def scenarios(folder: Path) -> dict[str, str]:
    """{name of a test that needs a broker: the scenario that its broker must be in}."""
    table = (folder / "test.c").read_text().partition("struct test tests[] = {")[2]
    found = {}
    for name, flags, rest in _ENTRY.findall(table):
        if "TEST_F_LOCAL" in flags:
            continue
        scenario = _SCENARIO.search(rest)
        for each in _parts(folder, name):
            found[each] = scenario[1].partition(",")[0] if scenario else "default"
    if not found:
        raise SystemExit(f"{folder / 'test.c'} has no table of tests as of librdkafka 2.15")
    return found


def _parts(folder: Path, name: str) -> list[str]:
    if name not in PARTED:
        return [name]
    parts = _PART.findall((folder / PARTED[name]).read_text())
    return [f"{name}.{part}" for part in dict.fromkeys(parts) if part not in _DRIVERS]


def outcomes_in(log: Path, names: list[str]) -> dict[str, bool]:
    """Whether each of these tests says that it has passed. One that has not ended, or not begun, has not."""
    text = log.read_text(errors="replace")
    words = dict(_OUTCOME.findall(text))
    outcomes = {}
    for name in names:
        test, _, part = name.partition(".")
        outcomes[name] = words.get(test) == "PASSED" and (not part or f"[ {part}:" in text)
    return outcomes


def main() -> int:
    only = parser(__doc__).parse_args().only
    folder = built()
    scenario_of = scenarios(folder)
    suite = Suite("librdkafka", list(scenario_of), groups=list(PARTED), kept=KAFKA_KEPT)
    #: What a process runs is chosen by a number, a scenario, and a part.
    units: defaultdict[str, list[str]] = defaultdict(list)
    for name in suite.chosen(only):
        part = name.partition(".")[2]
        units[f"{name.partition('_')[0]}-{scenario_of[name]}{part and f'-{part}'}"].append(name)

    with kafka_door() as (cluster, server):
        conf = KAFKA_KEPT / "test.conf"
        conf.write_text(f"metadata.broker.list={server}\ntest.timeout.multiplier={MULTIPLIER}\n")

        def outcomes(unit: str, log: Path) -> dict[str, bool]:
            number, scenario, *part = unit.split("-")
            variables = {
                "LD_LIBRARY_PATH": f"{folder.parent / 'src'}:{folder.parent / 'src-cpp'}",
                "RDKAFKA_TEST_CONF": str(conf),
                "TESTS": number,
                "TEST_KAFKA_VERSION": KAFKA,
                "CI": "",  # with it, some tests skip themselves
            }
            if part:
                variables["SUBTESTS"] = f"{part[0]}:"
            words = ("./test-runner", "-p1", "-Q", "-L", "-K", "-s", scenario)
            run_program(words, folder, log, seconds=TEST_S, variables=variables)
            return outcomes_in(log, units[unit])

        status = 0
        for scenario, creates in SCENARIOS.items():
            run_command(cluster, "policy", "set", "public/default", "auto-topic-creation", creates)
            chosen = [unit for unit in units if unit.split("-")[1] == scenario]
            if chosen:
                status |= suite.run(chosen, outcomes, at_once=AT_ONCE)
        return status


if __name__ == "__main__":
    sys.exit(main())
