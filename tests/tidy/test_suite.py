"""What `make test` runs, and what it shows while it runs and at the end."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.suite import Target, run_all
from tests.tidy.source import ROOT

TESTS = """
import pytest
def test_passes(): pass
@pytest.mark.parametrize("number", [1, 2])
def test_fails(number): assert number == 1
"""


def test_failures_are_shown_when_a_target_ends(
    capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each failure with its lines, and no line of a test that passed."""
    path = tmp_path_factory.mktemp("suite") / "test_two.py"
    path.write_text(TESTS)
    options = ["-p", "no:cacheprovider", "--rootdir", str(path.parent), "-c", "/dev/null"]
    failing = Target("failing", [sys.executable, "-m", "pytest", *options, str(path)])
    passing = Target("passing", [sys.executable, "-c", "print('checked'); print('nothing found')"])
    assert run_all([failing, passing]) == ["failing"]
    assert (failing.done, failing.count, failing.failed) == (3, 3, 1)
    shown = capfd.readouterr().out
    assert "assert 2 == 1" in shown
    assert "test_passes" not in shown
    assert "passing passed after 0:00\nnothing found\n" in shown
    assert "==> failed: failing, " in shown


def test_progress_counts_tests_and_names_the_file_of_the_one_that_runs() -> None:
    """Also before the line of a test is complete."""
    target = Target("test-core", [])
    target.read(
        "collecting ... collected 30 items\n\ntests/core/test_ids.py::test_a PASSED   [ 1/30]\ntests/core/test_"
    )
    assert target.progress() == "test-core 1 of 30"
    target.read("log.py::test_b FAILED [ 2/30]\ntests/core/test_log.py::test_c ")
    assert target.progress() == "test-core 2 of 30, 1 failed (core/test_log.py)"


class UntilReported(Target):
    """Runs until its progress has been asked for."""

    reported = Event()

    def run(self) -> int:
        assert self.reported.wait(60)
        return 0

    def progress(self) -> str:
        self.reported.set()
        return super().progress()


def test_progress_is_printed_while_targets_run(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, too."""
    assert run_all([UntilReported("slow", [])], every_s=0.01) == []
    assert "0:00  slow\n" in capfd.readouterr().out


def test_each_default_test_is_run_once() -> None:
    """Nobody would run the tests of a folder that no target names. The smoke tests need a kube context."""
    command = ["make", "--dry-run", "--always-make", "test-core"]
    (suite,) = re.findall(r"-m tests\.suite (.+)", (ROOT / "Makefile").read_text())
    command[-1:] = [target for target in suite.split() if target != "lint"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    named = [Path(path) for line in re.findall(r"/pytest (.*)", printed) for path in line.split()]
    files = [path.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py")]
    assert len(files) > 300
    for file in files:
        count = sum(file.is_relative_to(path) for path in named)
        assert count == (0 if file.parts[1].startswith("smoke") else 1), (
            f"{count} targets run {file}: see the lists of folders in the Makefile"
        )


@pytest.mark.parametrize(
    ("ci", "typed", "installs"), [("true", None, True), ("", None, False), ("", "n\n", False), ("", "y\n", True)]
)
def test_no_system_package_is_installed_without_a_yes(
    tmp_path: Path, ci: str, typed: str | None, installs: bool
) -> None:
    """Of a machine without Redis, Java and Chromium, by root: CI has nobody to ask; elsewhere only a yes at a terminal
    counts, and otherwise the command to run is named."""
    make = shutil.which("make")
    assert make is not None
    for name, script in (("id", "echo 0"), ("apt-get", f'echo "$@" >>{tmp_path}/asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, (typed or "").encode())
        done = subprocess.run(
            [make, "--no-print-directory", "tools"],
            cwd=ROOT,
            env={"PATH": str(tmp_path), "CI": ci},
            stdin=subprocess.DEVNULL if typed is None else terminal,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert "programs that are not installed: redis-server openjdk-17-jre-headless chromium" in done.stdout
    asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
    assert ("install -y -qq --no-install-recommends redis-server openjdk-17-jre-headless chromium" in asked) == installs
    assert (done.returncode == 0) == installs
    assert ("apt-get install redis-server openjdk-17-jre-headless chromium" in done.stderr) != installs
