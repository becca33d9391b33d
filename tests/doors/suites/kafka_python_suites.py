"""The tests of Kafka's Python clients: python -m tests.doors.suites.kafka_python_suites NAME [--only WORD ...].

NAME is one of:

    kafka-python                    its package has the tests
    aiokafka --sources DIR          DIR is a checkout: the package has no tests
    confluent-kafka --sources DIR   the same

The clients are those of the same versions as installed here, in an environment of their own. Each test that needs a
broker is run, and must pass, if `NAME_left_out.txt` does not name it with a reason. A test with several sets of
arguments is one line there, and passes if all of them do.
"""

import shutil
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.doors.suites.kafka_plugin import SERVER
from tests.doors.suites.suite_run import HERE, KAFKA_KEPT, Suite, kafka_door, parser, run_program

INSTALL_S = 1_800
#: Of one test, and of all tests of one file.
TEST_S, FILE_S = 120, 1_800
#: What a door answers like: no test for a newer broker is run.
KAFKA = "2.5.0"


@dataclass(frozen=True, slots=True)
class Client:
    """tests: the folder with its tests, in the sources. run: what is given to pytest. variables: how its tests learn
    the address of the broker, {server}; {folder} is where they are."""

    tests: str
    run: tuple[str, ...]
    variables: Mapping[str, str]


CLIENTS = {
    "kafka-python": Client(
        "test",
        ("test/integration",),
        {
            "KAFKA_URI": "PLAINTEXT://{server}",
            "ZOOKEEPER_URI": "PLAINTEXT://{server}",
            "KAFKA_VERSION": KAFKA,
            "KAFKA_ROOT": "{folder}",
        },
    ),
    "aiokafka": Client("tests", (f"--docker-image=door_{KAFKA}", "--no-pull", "tests"), {}),
    "confluent-kafka": Client(
        "tests",
        # Those of a schema registry need one.
        ("--ignore=tests/integration/schema_registry", "tests/integration"),
        {"BROKERS": "{server}"},
    ),
}
#: What kafka-python's package lacks of its tests. `service` would start Kafka.
_MISSING = {
    "kafka-python": {
        "test/__init__.py": "",
        "test/service.py": "class ExternalService:\n"
        "    def __init__(self, host, port): ...\n"
        "\n\nclass SpawnedService: ...\n",
    }
}


class PythonTests:
    """The tests of one client in an environment with all clients."""

    def __init__(self, name: str, sources: Path | None) -> None:
        self._name, self._client = name, CLIENTS[name]
        self._folder = KAFKA_KEPT / f"{name}-tests"
        self._python = _environment()
        shutil.rmtree(self._folder, ignore_errors=True)
        # Only the tests, because the library itself would come before the installed one.
        shutil.copytree((sources or self._downloaded()) / self._client.tests, self._folder / self._client.tests)
        # Else the configuration of this repository would be taken.
        (self._folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers = ssl\n")
        for path, text in _MISSING.get(name, {}).items():
            (self._folder / path).write_text(text)

    def _downloaded(self) -> Path:
        to = KAFKA_KEPT / "downloads"
        named = f"{self._name}=={version(self._name)}"
        words = [str(self._python), "-m", "pip", "download", "-q", "--no-deps", "--no-binary", self._name, named]
        subprocess.run([*words, "-d", str(to)], check=True, timeout=INSTALL_S)
        (archive,) = to.glob(f"{self._name.replace('-', '_')}-{version(self._name)}.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(to, filter="data")
        return to / archive.name.removesuffix(".tar.gz")

    def pytest(self, log: Path, server: str, *words: str, seconds: float) -> int | None:
        variables = {"PYTHONPATH": str(HERE), SERVER: server}
        for name, value in self._client.variables.items():
            variables[name] = value.format(server=server, folder=self._folder)
        own = ("-p", "kafka_plugin", "-p", "no:cacheprovider")
        limit = (f"--timeout={TEST_S}", "--timeout-method=signal")
        words = (str(self._python), "-m", "pytest", "-q", *own, *limit, *words)
        return run_program(words, self._folder, log, seconds=seconds, variables=variables)

    def nodes(self) -> dict[str, list[str]]:
        """{name of a test: its nodes, one for each set of arguments}."""
        log = KAFKA_KEPT / f"{self._name}-found.log"
        if self.pytest(log, "127.0.0.1:0", "--collect-only", *self._client.run, seconds=FILE_S) != 0:
            raise SystemExit(f"the tests cannot be imported: {log}")
        found: defaultdict[str, list[str]] = defaultdict(list)
        for word, node in _lines(log):
            if word == "found":
                found[_name_of(node)].append(node)
        return found

    def outcomes(self, log: Path, server: str, nodes: Sequence[str]) -> dict[str, bool]:
        """{node: whether it has passed}. One that has not ended has not."""
        options = [word for word in self._client.run if word.startswith("-")]
        self.pytest(log, server, *options, *nodes, seconds=FILE_S)
        words: defaultdict[str, set[str]] = defaultdict(set)
        for word, node in _lines(log):
            words[node].add(word)
        return {node: words[node] - {"found"} == {"passed"} for node in nodes}


def _environment() -> Path:
    """The interpreter of an environment with the clients."""
    folder = KAFKA_KEPT / "environment"
    python = folder / "bin/python"
    clients = [
        f"kafka-python=={version('kafka-python')}",
        f"aiokafka=={version('aiokafka')}",
        f"confluent-kafka[avro,json,protobuf,schemaregistry]=={version('confluent-kafka')}",
    ]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S)
    words = [str(python), "-m", "pip", "install", "-q", "-r", str(HERE / "kafka_requirements.txt"), *clients]
    subprocess.run(words, check=True, timeout=INSTALL_S)
    return python


def _lines(log: Path) -> list[tuple[str, str]]:
    """(word, node) of what the plugin has printed."""
    lines = log.read_text(errors="replace").splitlines()
    pairs = [line[1:].partition(" ") for line in lines if line.startswith("#")]
    return [(word, node) for word, _, node in pairs]


def _name_of(node: str) -> str:
    """tests/test_a.py::TestB::test_c[d] is test_a.TestB.test_c."""
    path, *names = node.partition("[")[0].split("::")
    return ".".join((Path(path).stem, *names))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("client", choices=CLIENTS)
    options.add_argument("--sources", type=Path, metavar="DIR", help="a checkout with the tests")
    given = options.parse_args()
    if given.client != "kafka-python" and given.sources is None:
        raise SystemExit(f"the package of {given.client} has no tests: give a checkout with --sources")
    tests = PythonTests(given.client, given.sources.resolve() if given.sources else None)
    nodes = tests.nodes()
    suite = Suite(given.client, list(nodes), groups=[name.rpartition(".")[0] for name in nodes], kept=KAFKA_KEPT)
    by_file: defaultdict[str, list[str]] = defaultdict(list)
    for name in suite.chosen(given.only):
        by_file[name.partition(".")[0]].append(name)
    passed: set[str] = set()

    with kafka_door() as (_, server):

        def outcomes(file: str, log: Path) -> dict[str, bool]:
            """The second attempt runs what failed in the first one."""
            left = [name for name in by_file[file] if name not in passed]
            found = tests.outcomes(log, server, [node for name in left for node in nodes[name]])
            passed.update(name for name in left if all(found[node] for node in nodes[name]))
            return {name: name in passed for name in by_file[file]}

        return suite.run(list(by_file), outcomes)


if __name__ == "__main__":
    sys.exit(main())
