"""Chaos for real: a standalone cluster under the workload while its processes are killed, and the verdict on it."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.lab.chaos.commands import app as chaos
from oncelog.lab.chaos.container_pause import processes_of
from tests.cluster.standalone_process import COMMAND_TIMEOUT_S, command, environment


def test_killed_processes_lose_and_double_nothing() -> None:
    """The owner, then a storage node and a metadata service at once: what users run, on a cluster of processes."""
    words = ("chaos", "run", "--standalone", "--seed", "16", "--seconds", "22", "--pace", "0.2", "-o", "json")
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
    for text in ("takeover of", "recover ", "reading everything back", "healed"):
        assert text in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--namespace", "none"), "kubectl"),
        (("run", "--kinds", "flood"), "there is only owner-kill"),
        (("plan", "--storage-nodes", "2", "--kinds", "storage-kill"), "no storage to spare"),
        (("workload", "--url", "oncelog://x", "--admin-url", "http://127.0.0.1:1", "--topics", "0"), "--topics"),
    ],
)
def test_wrong_use_is_explained(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """One sentence, no trace: also where there is no kubectl."""
    done = CliRunner().invoke(chaos, list(words), env={"PATH": str(tmp_path)}, terminal_width=200)
    assert done.exit_code in {1, 2}
    assert said in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_processes_of_a_container_are_found_by_their_group(tmp_path: Path) -> None:
    """And no others, nor what is no process."""
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
