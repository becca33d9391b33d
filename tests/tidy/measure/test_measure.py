"""What `make measure` prints, of made-up trees and of this one."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.tidy.measure.__main__ import differences, lines_of, main, report, shown
from tests.tidy.measure.tables import (
    SECONDS,
    languages_table,
    python_table,
    seconds_table,
    tables,
    walks_table,
)
from tests.tidy.measure.trees import tree_of, working_tree
from tests.tidy.measure.walks import WALKS, Walk, broken_hops, walks_in
from tests.tidy.source import DISTRIBUTIONS, ROOT

SMALL = {
    "services/oncelog/errors.py": "x = 1\n",
    "services/oncelog/core/ids.py": "x = 1\ny = 2\n",
    "services/oncelog/core/acks/ack_set.py": '"""Set."""\nx = 1\n',
    "services/oncelog/core/acks/deep/er.py": "x = 1\n",
    "services/oncelog/cli/admin/app.py": "x = 1\n",
    "services/oncelog/wire/owner_pb2.py": "x = 1\n",
    "services/oncelog_lab/demo/run.py": "x = 1\n",
    "services/oncelog_more/bench.py": "x = 1\n",
    "services/oncelog/console/page.html": "<p>\n\n</p>\n",
    "proto/oncelog/wire/owner.proto": "a\n",
    "deploy/helm/templates/owner.yaml": "a\n",
    "deploy/dashboard.json": "{}\n",
    "tests/conftest.py": "x = 1\n",
    "tests/core/acks/test_x.py": "x = 1\n",
    "tests/contract/owner/reference/test_x.py": "x = 1\n",
    "tests/values.yaml": "a\n",
}


def test_code_is_counted_by_distribution_and_room() -> None:
    """`core` by its rooms, too. A distribution that comes later is counted without a change here."""
    assert python_table("product", SMALL, "services").rows == {
        "services": (8, 7),
        "services/oncelog": (6, 5),
        "services/oncelog/cli": (1, 1),
        "services/oncelog/core": (4, 3),
        "services/oncelog/core/acks": (2, 2),
        "services/oncelog/core/(beside)": (2, 1),
        "services/oncelog/(beside)": (1, 1),
        "services/oncelog_lab": (1, 1),
        "services/oncelog_lab/demo": (1, 1),
        "services/oncelog_more": (1, 1),
        "services/oncelog_more/(beside)": (1, 1),
    }


def test_tests_are_counted_by_folder() -> None:
    """The folders of contract and cluster, too."""
    assert python_table("tests", SMALL, "tests").rows == {
        "tests": (3, 3),
        "tests/contract": (1, 1),
        "tests/contract/owner": (1, 1),
        "tests/core": (1, 1),
        "tests/(beside)": (1, 1),
    }


def test_other_languages_are_counted_outside_of_the_tests() -> None:
    """By suffix; what is neither code nor a template is left out."""
    rows = {"HTML": (2, 1), "chart (.yaml)": (1, 1), "wire (.proto)": (1, 1)}
    assert languages_table(SMALL).rows == rows


def test_walks_are_counted_by_files_and_hops() -> None:
    """A file that a walk passes twice is one file."""
    hops = "errors.py  x  a\noncelog/core/ids.py  y  b\noncelog/errors.py  x  c\n"
    tree = {**SMALL, WALKS: f"[one] from here to there\noncelog/{hops}"}
    assert walks_table(tree).rows == {"one": (2, 3, 3)}
    assert walks_table(SMALL).rows == {}


def test_seconds_are_those_that_the_suite_keeps() -> None:
    """Of each part, and its CPU time; without a run there are none, and the report says so."""
    measured = json.dumps({"test-core": {"seconds": 12.6, "cpu_seconds": 11.2}})
    assert seconds_table(measured).rows == {"test-core": (13, 11)}
    assert "not measured here: run make test" in "\n".join(report([*tables(SMALL), seconds_table("")]))
    assert "test-core" in "\n".join(report([*tables(SMALL), seconds_table(measured)]))


def test_report_of_the_repository_has_each_room() -> None:
    """In 100 columns, and its sums at the end, which is the line that the suite shows."""
    lines = list(report([*tables(working_tree()), seconds_table("")]))
    assert max(map(len, lines)) <= 100
    words = set(" ".join(lines).split())
    rooms = [folder.name for top in DISTRIBUTIONS for folder in (ROOT / top).iterdir() if any(folder.glob("*.py"))]
    rooms += [folder.name for folder in (ROOT / "services/oncelog/core").iterdir() if any(folder.glob("*.py"))]
    rooms += [folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("**/*.py"))]
    assert set(rooms) - {"wire"} - words == set()
    assert lines[-1].startswith("code lines: ")


def test_rows_are_indented_by_their_folders() -> None:
    """So that a reader sees what belongs to what."""
    lines = lines_of(python_table("product", SMALL, "services"))
    assert [line.split("  ")[0] or line[:10] for line in lines[:3]] == ["product", "services", "  oncelog "]
    assert len({len(line) for line in lines}) == 1


def test_differences_are_shown_for_each_number() -> None:
    """A room that is new, one that is gone, and one that changed; what was not measured before is left out."""
    after = {path: text for path, text in SMALL.items() if "/cli/" not in path}
    after |= {"services/oncelog/errors.py": "x = 1\ny = 2\n", WALKS: "[one] from here\noncelog/errors.py  x  a\n"}
    found = differences(tables(SMALL), tables(after))
    assert found == {
        "product": {
            "services": {"files": [7, 6]},
            "services/oncelog": {"files": [5, 4]},
            "services/oncelog/(beside)": {"code lines": [1, 2]},
            "services/oncelog/cli": {"code lines": [1, 0], "files": [1, 0]},
        }
    }
    assert "  services/oncelog/(beside)               code lines         1        2       +1" in list(shown(found))
    assert list(shown(differences(tables(SMALL), tables(SMALL)))) == ["nothing differs"]


def test_a_revision_is_read_from_git(tmp_path: Path) -> None:
    """As it was, and not as the working tree is."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services/x.py").write_text("x = 1\n")
    for command in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "services/x.py").write_text("x = 2\n")
    assert tree_of("HEAD", tmp_path) == {"services/x.py": "x = 1\n"}
    with pytest.raises(subprocess.CalledProcessError):
        tree_of("no-such-revision", tmp_path)


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """For a program that compares two runs."""
    assert main(["--output", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["product"]["services"]["code lines"] > printed["product"]["services/oncelog"]["code lines"] > 0
    assert SECONDS.startswith(".cache/")


# --- walks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("walk", walks_in((ROOT / WALKS).read_text()), ids=lambda walk: walk.name)
def test_walk_is_that_of_the_code(walk: Walk) -> None:
    """Each file and name exists, and each hop leads to the next one."""
    assert list(broken_hops(walk, working_tree())) == []


WALK = """\
[one] from here to there
oncelog/a.py  f  begins
oncelog/b.py  G  (Publish) over the wire
oncelog/c.py  NAME  ends
"""
CONNECTED = {
    "services/oncelog/a.py": "def f():\n    return 'Publish'\n",
    "services/oncelog/b.py": "Publish = 1\nclass G:\n    pass\n",
    "services/oncelog/c.py": "from oncelog import b\nNAME = b.G\n",
}


def test_connected_walk_is_whole() -> None:
    """By an import in either direction, or a name that both have."""
    (walk,) = walks_in(WALK)
    assert list(broken_hops(walk, CONNECTED)) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("a.py", None, "there is no file services/oncelog/a.py"),
        ("b.py", "Publish = 1", "services/oncelog/b.py has no G"),
        ("a.py", "def f(): 'Published'", "services/oncelog/a.py and services/oncelog/b.py do not both say Publish"),
        ("c.py", "NAME = 1", "services/oncelog/b.py and services/oncelog/c.py do not import each other"),
    ],
)
def test_walk_that_the_code_has_left_is_found(path: str, text: str | None, complaint: str) -> None:
    """The control: a file is gone, a name is, a word is, an import is."""
    (walk,) = walks_in(WALK)
    tree = {name: each for name, each in CONNECTED.items() if name != f"services/oncelog/{path}"}
    if text is not None:
        tree[f"services/oncelog/{path}"] = text
    assert f"one: {complaint}" in list(broken_hops(walk, tree))


def test_line_that_is_no_hop_is_refused() -> None:
    """Else it would be counted as nothing."""
    for text in ("oncelog/a.py  f  before any head", "[one] from here to there\noncelog/a.py"):
        with pytest.raises(ValueError, match="neither the head of a walk nor a hop"):
            walks_in(text)
