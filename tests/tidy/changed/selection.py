"""Which test files depend on what has changed since a revision.

    changed files ──> what needs them, by the graph of imports ──> test files, with their conftest.py

A file that is not Python counts as a change of what reads it: the tests that name it, the folders of tests that read
its folder (`graph.READS`), and, for what lies in a package (templates, pages of SQL, seeds), the modules beside it.

The answer is a superset as far as imports, started modules and read files can be seen in the sources. It does not see a
program that a test finds in another way. So it is for the time between two commits: before one, `make test` runs all.
"""

import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from tests.tidy.changed.graph import READS, Graph
from tests.tidy.source import ROOT, ignored_names, repository

#: All tests run with them.
OF_ALL_TESTS = {".python-version", "pyproject.toml", "requirements.lock", "tests/__init__.py", "tests/conftest.py"}
#: They need an installed release in the current kube context, and are never run for a change.
ELSEWHERE = ("tests/smoke/", "tests/smoke_spark/", "tests/smoke_storage/")


def changed_tests(base: str = "main") -> list[Path]:
    """The test files that depend on what differs from `base`, relative to the repository, in order of their paths.

    Counted are commits since HEAD left `base`, changes that are not committed, and files that git does not know yet.
    All test files are returned if one of `OF_ALL_TESTS` differs; none if nothing does. Tests that need an installed
    release (`ELSEWHERE`) are never returned. Raises CalledProcessError if git does not know `base`.
    """
    tree = {source.path: source.text for source in repository()}
    return [Path(path) for path in selected_tests(tree, changed_files(base))]


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """The paths that differ from the revision where HEAD left `base`; a renamed file has two."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    (fork,) = git("merge-base", base, "HEAD")
    found = {*git("diff", "--name-only", "--no-renames", fork), *git("ls-files", "--others", "--exclude-standard")}
    ignored = ignored_names()
    return sorted(path for path in found if path.split("/")[0] not in ignored)


def selected_tests(tree: Mapping[str, str], changed: Collection[str]) -> list[str]:
    """The test files that depend on these paths. tree: {path: text} of all files that are there now."""
    tests = sorted(path for path in tree if _is_test(path))
    if reason_for_all(changed) is not None:
        return tests
    graph = Graph(tree, gone=[path for path in changed if path not in tree])
    for test in tests:
        graph.needs[test].update(_conftests(test, tree))
    dependents = graph.dependents([each for path in changed for each in _with_readers(path, tree)])
    return [test for test in tests if test in dependents or _reads(test, changed)]


def reason_for_all(changed: Iterable[str]) -> str | None:
    """Why all tests are needed; None: they are not."""
    decisive = sorted(OF_ALL_TESTS.intersection(changed))
    return f"all tests run with {', '.join(decisive)}" if decisive else None


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return path.startswith("tests/") and name.startswith("test_") and name.endswith(".py") and not _is_elsewhere(path)


def _is_elsewhere(path: str) -> bool:
    return path.startswith(ELSEWHERE)


def _conftests(test: str, tree: Mapping[str, str]) -> list[str]:
    beside = [f"{folder}/conftest.py" for folder in PurePosixPath(test).parents]
    return [path for path in beside if path in tree]


def _with_readers(path: str, tree: Mapping[str, str]) -> list[str]:
    """The path, and for data in a package the modules of the nearest folder that has some."""
    if path.endswith((".py", ".md")) or not path.startswith(("services/", "tests/")):
        return [path]
    for folder in PurePosixPath(path).parents:
        beside = [each for each in tree if each.endswith(".py") and PurePosixPath(each).parent == folder]
        if beside:
            return [path, *beside]
    return [path]


def _reads(test: str, changed: Collection[str]) -> bool:
    return any(
        path.startswith(folders) for reader, folders in READS.items() if test.startswith(reader) for path in changed
    )
