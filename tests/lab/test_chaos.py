"""Chaos on a standalone cluster: its processes are killed under load. And the errors of the command line."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog_lab.chaos.commands import app as chaos
from oncelog_lab.faults.container_pause import processes_of
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment


def test_killed_processes_lose_and_duplicate_nothing() -> None:
    """The owner, then a storage node and a metadata service at once."""
    words = ("chaos", "run", "--standalone", "--seed", "16", "--seconds", "22", "--pace", "0.05", "-o", "json")
    kinds = ("--kinds", "owner-kill,storage-kill,metadata-kill")
    done = subprocess.run(
        command(*words, *kinds),
        capture_output=True,
        env=environment(),
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert [outcome[name] for name in ("ok", "lost", "duplicated", "out_of_order", "missed")] == [True, 0, 0, 0, []]
    assert outcome["acked"] > 100
    assert {fault["kind"]: fault["count"] for fault in outcome["faults"]} == dict.fromkeys(kinds[1].split(","), 1)
    assert all(fault["client_gap_ms_max"] > 0 for fault in outcome["faults"])
    for text in ("takeover of", "recover ", "reading everything back", "healthy again"):
        assert text in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--namespace", "none"), "kubectl"),
        (("run", "--kinds", "flood"), "the kinds are owner-kill"),
        (("plan", "--storage-nodes", "2", "--kinds", "storage-kill"), "loss of one storage process (it has 2)"),
        (("workload", "--url", "oncelog://x", "--admin-url", "http://127.0.0.1:1", "--topics", "0"), "--topics"),
    ],
)
def test_wrong_use_is_explained(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """One sentence and no traceback, also without kubectl."""
    done = CliRunner().invoke(chaos, list(words), env={"PATH": str(tmp_path)}, terminal_width=200)
    assert done.exit_code in {1, 2}
    assert said in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_processes_of_a_container_are_found_by_their_control_group(tmp_path: Path) -> None:
    """Other processes and other files are ignored."""
    for name, group in (
        ("7", "0::/pods/abc123\n"),
        ("12", "0::/pods/abc123/x\n"),
        ("9", "0::/pods/def\n"),
        ("sys", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(group)
    (tmp_path / "13").mkdir()
    assert processes_of("abc123", tmp_path) == [7, 12]


@pytest.mark.parametrize("option", ["rollout", "node-cut", "node-recover", "node-kill", "node-start"])
@pytest.mark.parametrize("text", ["helm upgrade 'oncelog", ""])
def test_malformed_command_line_is_refused_before_the_run(option: str, text: str) -> None:
    """An unclosed quote would otherwise fail in the middle of the run."""
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    answer = CliRunner().invoke(chaos, ["run", f"--{option}-command", text], env=environment)
    assert answer.exit_code == 2
    assert f"--{option}-command" in answer.output
