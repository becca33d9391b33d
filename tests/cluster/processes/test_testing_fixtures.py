"""`oncelog.testing` as users have it: in a pytest of their own, with a conftest.py of one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.testing import ClusterNotStarted, LocalCluster
from tests.cluster.kills import alive, just_seen, kill_sync
from tests.cluster.until import until_sync
from tests.tidy.source import ROOT

_DEADLINE_S = 240.0
#: Behind the tests of the page, in the same file.
_LAST_TESTS = """

USED = set()

def test_topic_is_new(oncelog_topic):
    USED.add(oncelog_topic)

def test_topic_is_new_again(oncelog_topic):
    assert oncelog_topic not in USED

def test_which_never_ends(oncelog_cluster):
    import json, signal
    from pathlib import Path

    status = oncelog_cluster.status()
    found = {"pids": [status["pid"], *(p["pid"] for p in status["processes"])], "data": str(oncelog_cluster.data)}
    Path("reached.new").write_text(json.dumps(found))
    Path("reached.new").rename("reached")
    signal.pause()
"""


def programs_of_the_page() -> list[str]:
    """The blocks of code of "Tests with pytest" in docs/sdk.md."""
    section = (ROOT / "docs" / "sdk.md").read_text().partition("## Tests with pytest\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_fixtures_serve_every_test_and_end_with_a_killed_pytest(tmp_path: Path) -> None:
    """The example of the page: one cluster for the run, a topic or namespace for each test. After kill -9 of pytest no
    process is left, and no file: nobody cleans up after a test run that was killed."""
    conftest, tests, _ = programs_of_the_page()
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_shop.py").write_text(tests + _LAST_TESTS)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(
            command, cwd=tmp_path, stdout=output, stderr=output, env=os.environ | {"TMPDIR": str(temporary)}
        )
    try:
        until_sync(
            lambda: (tmp_path / "reached").exists() or run.poll() is not None, _DEADLINE_S, waiting_for="the last test"
        )
        said = (tmp_path / "output").read_text()
        assert len(re.findall("PASSED", said)) == 4, said
        kill_sync(run, once=just_seen)
    finally:
        run.kill()
        run.wait()
    left = json.loads((tmp_path / "reached").read_text())
    assert len(left["pids"]) == 5
    until_sync(lambda: not any(map(alive, left["pids"])), _DEADLINE_S, waiting_for="the end of the cluster")
    assert not Path(left["data"]).exists()


def test_start_that_fails_raises_what_standalone_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, which pytest shows as the error of each test that needs the cluster."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClusterNotStarted, match=r"^JAVA_HOME is .*correct or unset JAVA_HOME"), LocalCluster():
        raise AssertionError("it has started without Java")


def test_sdk_does_not_import_the_fixtures() -> None:
    """Programs have no pytest."""
    code = "import sys, oncelog; oncelog.Client; print('pytest' in sys.modules, 'oncelog.testing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
