"""Which tests a change selects, in a made-up repository and in this one."""

import subprocess
from pathlib import Path

import pytest

from tests.tidy.changed.__main__ import main
from tests.tidy.changed.graph import RARE_COMMANDS, READS, Graph
from tests.tidy.changed.selection import ELSEWHERE, OF_ALL_TESTS, changed_files, reason_for_all, selected_tests
from tests.tidy.source import ROOT, repository

TREE = {
    "pyproject.toml": "",
    "docs/recipes.md": "    from oncelog_effects import process\n",
    "docs/code.md": "",
    "proto/wire.proto": "",
    "deploy/helm/values.yaml": "",
    "services/oncelog/__init__.py": """
from typing import TYPE_CHECKING
from oncelog import errors
if TYPE_CHECKING:
    from oncelog.client.connecting import connect
LAZY = {"connect": "oncelog.client.client"}
""",
    "services/oncelog/errors.py": "",
    "services/oncelog/client/__init__.py": "",
    "services/oncelog/client/client.py": "def f():\n    from oncelog.core import ids",
    "services/oncelog/core/__init__.py": "",
    "services/oncelog/core/ids.py": "from .names import name",
    "services/oncelog/core/names.py": '"""Not oncelog_effects.store."""\nERROR = "see oncelog_effects.store"',
    "services/oncelog/cli/__init__.py": "",
    "services/oncelog/cli/__main__.py": "from oncelog.cli.app import app",
    "services/oncelog/cli/app.py": """
app = ["oncelog.cli.produce", "oncelog_spark.cli.app", "oncelog_lab.demo.command"]
""",
    "services/oncelog/cli/produce.py": "import oncelog",
    "services/oncelog_spark/cli/__init__.py": "",
    "services/oncelog_spark/cli/app.py": "",
    "services/oncelog_effects/__init__.py": "",
    "services/oncelog_effects/store.py": "",
    "services/oncelog/console/__init__.py": "",
    "services/oncelog/console/page.py": "",
    "services/oncelog/console/templates/page.html": "",
    "services/oncelog_effects/django/__init__.py": "",
    "services/oncelog_effects/django/apps.py": "",
    "services/oncelog_effects/django/models.py": "",
    "services/oncelog_lab/__init__.py": "",
    "services/oncelog_lab/demo/__init__.py": "",
    "services/oncelog_lab/demo/command.py": "",
    "tests/__init__.py": "",
    "tests/conftest.py": "import oncelog.errors",
    "tests/core/__init__.py": "",
    "tests/core/test_ids.py": "from oncelog.core.ids import name",
    "tests/client/__init__.py": "",
    "tests/client/conftest.py": "from tests.client import server",
    "tests/client/server.py": "",
    "tests/client/test_connect.py": "import oncelog\noncelog.connect()",
    "tests/client/deep/test_import.py": "from ..server import x",
    "tests/cluster/fixture.py": 'COMMAND = ["-m", "oncelog.cli", "standalone"]',
    "tests/cluster/test_cluster.py": "from tests.cluster import fixture",
    "tests/cluster/test_pipeline.py": 'def f():\n    run("pipeline audit")\n    run("demo")',
    "tests/console/test_console.py": "from oncelog.console import page",
    "tests/recipes/programs.py": 'PAGE = "docs/recipes.md"',
    "tests/recipes/test_recipes.py": "from tests.recipes.programs import PAGE",
    "tests/recipes/test_django.py": 'APPS = ["oncelog_effects.django"]\nPAGE = ROOT / "docs" / "code.md"',
    "tests/kubernetes/test_chart.py": 'GOLDEN = HERE / "golden.yaml"\nVALUES = HERE / "values"',
    "tests/kubernetes/golden.yaml": "",
    "tests/kubernetes/values/one.yaml": "",
    "tests/simulation/test_seeds.py": "from tests.simulation import sweep",
    "tests/simulation/sweep.py": 'SEEDS = "seeds.txt"',
    "tests/simulation/seeds.txt": "",
    "tests/text/test_program.py": 'PROGRAM = "import oncelog\\noncelog.connect()"',
    "tests/smoke/test_release.py": "import oncelog.errors",
    "tests/tidy/test_rules.py": "",
}
CORE, CONNECT, IMPORT = "core/test_ids.py", "client/test_connect.py", "client/deep/test_import.py"
CLUSTER, PIPELINE, CONSOLE = "cluster/test_cluster.py", "cluster/test_pipeline.py", "console/test_console.py"
RECIPES, DJANGO, CHART = "recipes/test_recipes.py", "recipes/test_django.py", "kubernetes/test_chart.py"
SEEDS, PROGRAM, TIDY = "simulation/test_seeds.py", "text/test_program.py", "tidy/test_rules.py"
#: {what changed: the tests besides those of tests/tidy, which read all files}
CASES = {
    "services/oncelog/core/ids.py": [CONNECT, CLUSTER, CORE, PROGRAM],  # also imported in a function
    "services/oncelog/core/names.py": [CONNECT, CLUSTER, CORE, PROGRAM],  # by a relative import
    "services/oncelog/client/client.py": [CONNECT, CLUSTER, PROGRAM],  # by name when it is used; not for core's package
    "services/oncelog/cli/produce.py": [CLUSTER],  # by `python -m`, and the name of a command
    "services/oncelog/cli/app.py": [CLUSTER],
    "services/oncelog_spark/cli/app.py": [PIPELINE],  # only where the word is
    "services/oncelog_lab/demo/command.py": [PIPELINE],
    "services/oncelog_effects/store.py": [],  # named in a docstring and in an error only
    "services/oncelog_effects/__init__.py": [DJANGO, RECIPES],  # by a program of the page; with a module of the package
    "services/oncelog_effects/django/models.py": [DJANGO],  # by Django
    "services/oncelog/console/templates/page.html": [CONSOLE],  # counts for the modules beside its folder
    "tests/client/server.py": [IMPORT, CONNECT],  # by conftest.py for all below its folder
    "tests/client/conftest.py": [IMPORT, CONNECT],
    "tests/core/test_ids.py": [CORE],
    "tests/simulation/seeds.txt": [SEEDS],
    "tests/kubernetes/golden.yaml": [CHART],
    "tests/kubernetes/values/one.yaml": [CHART],
    "docs/recipes.md": [RECIPES],
    "docs/code.md": [DJANGO],  # by its name alone
    "deploy/helm/values.yaml": [CHART],  # by the table
    "proto/wire.proto": [],
    "CHANGELOG.md": [],
}


@pytest.mark.parametrize(("changed", "expected"), CASES.items(), ids=CASES.keys())
def test_change_selects_what_depends_on_it(changed: str, expected: list[str]) -> None:
    """By imports, started modules and files that are read; and always the tests that read all files."""
    assert selected_tests(TREE, [changed]) == sorted(f"tests/{name}" for name in [*expected, TIDY])


def test_package_that_is_only_imported_is_needed_with_its_imports() -> None:
    """`oncelog/__init__.py` runs wherever a module of it is imported, and imports the errors then."""
    assert set(selected_tests(TREE, ["services/oncelog/__init__.py"])) >= {f"tests/{name}" for name in (CORE, CONSOLE)}
    assert f"tests/{CORE}" in selected_tests(TREE, ["services/oncelog/errors.py"])


def test_module_that_was_deleted_selects_what_still_names_it() -> None:
    """A test that imports it fails, and has to be run."""
    tree = {path: text for path, text in TREE.items() if path != "services/oncelog/core/names.py"}
    assert f"tests/{CORE}" in selected_tests(tree, ["services/oncelog/core/names.py"])


def test_several_changes_select_the_tests_of_each() -> None:
    """And nothing selects nothing."""
    changed = ["services/oncelog_effects/django/models.py", "docs/recipes.md"]
    assert selected_tests(TREE, changed) == [f"tests/{name}" for name in (DJANGO, RECIPES, TIDY)]
    assert selected_tests(TREE, []) == []


@pytest.mark.parametrize("changed", sorted(OF_ALL_TESTS))
def test_some_changes_need_all_tests(changed: str) -> None:
    """But for those that need an installed release, which no change runs."""
    tests = selected_tests(TREE, [changed])
    assert tests == sorted(path for path in TREE if "/test_" in path and not path.startswith(ELSEWHERE))
    assert reason_for_all([changed, "docs/code.md"]) == f"all tests run with {changed}"
    assert reason_for_all(["docs/code.md"]) is None


def test_changes_are_those_since_the_branch_was_made(tmp_path: Path) -> None:
    """Committed, staged, not staged, deleted, renamed (both names), not known to git; and not what main has since."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    def write(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text(f"{name}\n" * 9)

    git("init", "-q", "-b", "main")
    write("same.py", "committed.py", "changed.py", "deleted.py", "old.py")
    git("add", ".")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "mine")
    (tmp_path / "committed.py").write_text("x")
    git("mv", "old.py", "new.py")
    git("commit", "-qam", "two")
    git("checkout", "-q", "main")
    write("of_main.py")
    git("add", ".")
    git("commit", "-qm", "three")
    git("checkout", "-q", "mine")
    (tmp_path / "changed.py").write_text("x")
    (tmp_path / "deleted.py").unlink()
    write("staged.py", "unknown.py")
    git("add", "staged.py")
    (tmp_path / "build").mkdir()
    write("build/x.py")
    expected = ["changed", "committed", "deleted", "new", "old", "staged", "unknown"]
    assert changed_files("main", tmp_path) == [f"{name}.py" for name in expected]
    with pytest.raises(subprocess.CalledProcessError):
        changed_files("no-such-revision", tmp_path)


def test_tests_of_a_cluster_need_its_services_and_not_spark() -> None:
    """Of this repository: they start programs by name, and a rule that loses one of these would run too little."""
    graph = Graph({source.path: source.text for source in repository()})
    test = "tests/cluster/processes/test_standalone.py"
    programs = [f"services/oncelog/{name}/__main__.py" for name in ("topic_owner", "log_storage", "metadata", "cli")]
    commands = ["services/oncelog/cli/standalone/command.py", "services/oncelog/cli/produce/command.py"]
    for path in [*programs, *commands, "services/oncelog/core/node/node.py", "services/oncelog/client/client.py"]:
        assert test in graph.dependents([path]), path
    for path in ("services/oncelog_spark/sink/writer.py", "services/oncelog_lab/demo/command.py"):
        assert test not in graph.dependents([path]), path
    assert "tests/lab/test_demo.py" in graph.dependents(["services/oncelog_lab/demo/command.py"])


def test_tables_name_what_is_there() -> None:
    """A folder that was renamed would be read by nobody."""
    places = [
        *READS,
        *OF_ALL_TESTS - {".python-version"},
        *ELSEWHERE,
        *(each for read in READS.values() for each in read),
    ]
    assert [place for place in places if not (ROOT / place).exists()] == []
    modules = {source.module for source in repository() if source.is_python}
    assert set(RARE_COMMANDS.values()) <= modules


def test_command_prints_a_file_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And on standard error how many, or why all."""
    assert main(["pyproject.toml"]) == 0
    printed = capsys.readouterr()
    assert "tests/tidy/changed/test_changed.py" in printed.out.splitlines()
    assert printed.err.startswith("all tests run with pyproject.toml: ")
    with pytest.raises(SystemExit):
        main(["--against", "no-such-revision"])
