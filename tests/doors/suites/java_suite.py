"""Tests of Pulsar's broker for its Java client: python -m tests.doors.suites.java_suite [--only WORD ...].

Maven fetches Pulsar's tests, compiled. 94 classes of them extend `SharedPulsarBaseTest`, which starts a broker. Here
our class of that name is in front, and connects to a door. The ports 6650 and 8080 must be free. `java_left_out.txt`
names the classes and tests that are not run, each with the reason. Every other one must pass.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.doors.clients.java.java_programs import fetched, program
from tests.doors.suites.suite_run import HERE, PORT, REST_PORT, Suite, door, parser, run_command, run_program

#: Of one class; the slowest ones wait for minutes.
CLASS_S = 1_200.0
#: Of one test that has no limit of its own.
TEST_MS = 240_000
#: Classes. Most of their time they wait.
AT_ONCE = 3
#: ClientDeduplicationTest wants Pulsar's rule for an id between stored ones, under which the message is lost.
POLICY = ("pulsar-accept-stale", "on")
_OPTIONS = (
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j2.configurationFile={HERE / 'java/log4j2.xml'}",
    f"-Dtest.ms={TEST_MS}",
    f"-Ddoor.pulsar=pulsar://127.0.0.1:{PORT}",
    f"-Ddoor.rest=http://127.0.0.1:{REST_PORT}",
    # As Pulsar's own build starts its tests: they mock classes of the JDK.
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in ("java.lang", "java.util", "sun.net", "jdk.internal.loader")
    ),
)


class JavaTests:
    """The tests, behind our class."""

    def __init__(self, classes: Path) -> None:
        """classes: an empty directory."""
        self._jars = fetched(HERE / "java/pom.xml")
        self._classes = classes
        sources = [str(path) for path in sorted((HERE / "java").glob("*.java"))]
        words = [program("javac"), "-d", str(classes), "-cp", f"{self._jars}/*", *sources]
        subprocess.run(words, check=True, timeout=CLASS_S)

    def words(self, main: str, *arguments: str) -> list[str]:
        return [program("java"), *_OPTIONS, "-cp", f"{self._classes}:{self._jars}/*", main, *arguments]

    @cache  # noqa: B019 - one object lives for the whole run
    def packages(self) -> dict[str, str]:
        """{CLASS.TEST: name of the class with its package}."""
        (jar,) = self._jars.glob("pulsar-broker-*-tests.jar")
        words = self.words("SuiteList", str(jar))
        listed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=CLASS_S).stdout
        pairs = [line.split() for line in listed.splitlines() if line.startswith("#")]
        return {f"{name.rpartition('.')[2]}.{test}": name for _, name, test in pairs}


def outcomes_in(log: Path, name: str, tests: list[str]) -> dict[str, bool]:
    """A test runs once for each set of its arguments, and passes if all of them do. One that has not ended fails."""
    words: defaultdict[str, set[str]] = defaultdict(set)
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("#"):
            word, _, test = line[1:].partition(" ")
            words[test].add(word)
    return {f"{name}.{test}": words[test] == {"passed"} for test in tests}


def main() -> int:
    only = parser(__doc__).parse_args().only
    with tempfile.TemporaryDirectory() as classes:
        java = JavaTests(Path(classes))
        packages = java.packages()
        suite = Suite("java", list(packages), groups=[name.partition(".")[0] for name in packages])
        by_class: defaultdict[str, list[str]] = defaultdict(list)
        for name in suite.chosen(only):
            kind, _, test = name.partition(".")
            by_class[kind].append(test)

        def outcomes(kind: str, log: Path) -> dict[str, bool]:
            tests = by_class[kind]
            words = java.words("SuiteRunner", packages[f"{kind}.{tests[0]}"], *tests)
            run_program(words, Path(classes), log, seconds=CLASS_S)
            return outcomes_in(log, kind, tests)

        with door() as cluster:
            run_command(cluster, "policy", "set", "cluster", *POLICY)
            return suite.run(list(by_class), outcomes, at_once=AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
