"""The tests of Pulsar's Python client: python -m tests.doors.suites.python_suite --sources DIR [--only WORD ...].

DIR is a checkout of apache/pulsar-client-python: its package does not contain them. They speak to localhost:6650, and
to REST at localhost:8080, so both ports must be free. The client is the one that is installed here.
`python_left_out.txt` names the tests that are not run, each with the reason. Every other one must pass.
"""

import subprocess
import sys
from pathlib import Path

from tests.doors.suites.suite_run import Suite, door, parser, run_command, run_program

#: Not here: those that need containers or OAuth2.
MODULES = (
    "asyncio_test",
    "custom_logger_test",
    "debug_logger_test",
    "interrupted_test",
    "pulsar_test",
    "reader_test",
    "schema_test",
    "table_view_test",
)
TEST_S = 120.0
#: Without the end of the interpreter, in which the client's library crashes now and then when its tests have passed.
_RUN = """
import os, sys, unittest

done = unittest.main(module=None, argv=sys.argv, exit=False, verbosity=2)
sys.stdout.flush()
os._exit(0 if done.result.wasSuccessful() else 1)
"""
_LIST = """
import sys, unittest

def names(found):
    for test in found:
        if isinstance(test, unittest.TestSuite):
            yield from names(test)
        else:
            yield test.id()

for name in names(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])):
    print(name)
"""


def names_of(folder: Path) -> list[str]:
    """MODULE.CLASS.TEST, of all modules."""
    words = [sys.executable, "-c", _LIST, *MODULES]
    listed = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout.split()
    broken = [name for name in listed if "_FailedTest" in name]
    if broken:
        raise SystemExit(f"tests cannot be imported: {', '.join(broken)}; install pulsar-client[all] and requests")
    return listed


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--sources", required=True, type=Path, metavar="DIR", help="the checkout with the tests")
    given = options.parse_args()
    folder = given.sources.resolve() / "tests"
    suite = Suite("python", names_of(folder))

    def outcome(name: str, log: Path) -> dict[str, bool]:
        words = [sys.executable, "-c", _RUN, name]
        return {name: run_program(words, folder, log, seconds=TEST_S) == 0}

    with door() as cluster:
        # As the library's own script prepares its broker.
        run_command(cluster, "namespaces", "create", "public/default-2")
        return suite.run(suite.chosen(given.only), outcome)


if __name__ == "__main__":
    sys.exit(main())
