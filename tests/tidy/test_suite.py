"""What `make test` runs, in which order, and what it shows while it runs and at the end."""

import os
import pty
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from tests.cluster.until import until_sync
from tests.suite.__main__ import chosen_proofs, run_all
from tests.suite.changes import NIGHT_S, before_last_night
from tests.suite.forked_part import forks_of_parts
from tests.suite.parts import PARTS, PROOFS, Part
from tests.suite.proof import Proof
from tests.suite.queue import Measured, Places, keep_seconds, longest_first, next_part, read_seconds
from tests.suite.running import FREE_BYTES, Running, check_free_disk
from tests.suite.steady import load
from tests.tidy.guarantees import marked_tests
from tests.tidy.source import ROOT

TESTS = """
import pytest
def test_passes(tmp_path): (tmp_path / "passed").write_text("")
@pytest.mark.parametrize("number", [1, 2])
def test_fails(tmp_path, number):
    (tmp_path / "node.log").write_text("")
    assert number == 1
"""
PLACES = Places(computing=1, total=3, cores=2)


def part(name: str, *words: str, computes: bool = False, seconds: float = 1.0) -> Part:
    return Part(name, (name,), seconds, computes, words=words)


def test_a_full_disk_is_an_error_at_the_start() -> None:
    """On it clusters refuse messages, and tests fail after minutes with other words."""
    with pytest.raises(SystemExit, match=r"3\.9 GiB free, and the tests need 4: .* in TMPDIR"):
        check_free_disk(FREE_BYTES - FREE_BYTES // 40)
    check_free_disk(FREE_BYTES)


def test_failures_are_shown_when_a_part_ends(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each failure with its lines, and no line of a test that passed. The files of a failed test are kept and named."""
    path = tmp_path / "test_two.py"
    path.write_text(TESTS)
    options = ["-p", "no:cacheprovider", "--rootdir", str(path.parent), "-c", "/dev/null"]
    options += ["-o", "tmp_path_retention_policy=failed"]
    failing = part("failing", sys.executable, "-m", "pytest", *options, str(path))
    passing = part("passing", sys.executable, "-c", "print('checked'); print('nothing found')")
    runs = list[Running]()

    def running(chosen: Part, files: Path) -> Running:
        runs.append(Running(chosen, files))
        return runs[-1]

    assert run_all([failing, passing], seconds=tmp_path / "seconds.json", running=running) == ["failing"]
    shown, [failed] = capfd.readouterr().out, [one for one in runs if one.part is failing]
    assert (failed.done, failed.count, failed.failed) == (3, 3, 1)
    assert "assert 2 == 1" in shown
    assert "test_passes" not in shown
    assert "passing passed after 0:00\nnothing found\n" in shown
    assert "==> failed: failing, " in shown
    assert f"logs and directories: {failed.directory}\n" in shown
    assert [log.parent.name for log in failed.directory.rglob("*.log")] == ["test_fails_2_0"]
    assert list(read_seconds(tmp_path / "seconds.json")) == ["passing"]
    shutil.rmtree(failed.files)


def test_progress_counts_tests_and_names_the_file_of_the_one_that_runs(tmp_path: Path) -> None:
    """Also before the line of a test is complete."""
    running = Running(part("core"), tmp_path)
    running.read(
        "collecting ... collected 30 items\n\ntests/core/test_ids.py::test_a PASSED   [ 1/30]\ntests/core/test_"
    )
    assert running.progress() == "core 1 of 30"
    running.read("log.py::test_b FAILED [ 2/30]\ntests/core/test_log.py::test_c ")
    assert running.progress() == "core 2 of 30, 1 failed (core/test_log.py)"


INTERRUPTED = """
import os, threading
def test_waits(tmp_path):
    print(*[os.environ["GIVEN"], os.environ.get("CHANGED")])
    (tmp_path / "begun").write_text("")
    os.environ["CHANGED"] = "1"
    while True:
        threading.Event().wait(1)  # a signal just before a wait interrupts the next one
"""


def test_forked_part_is_a_process_of_its_own_that_ctrl_c_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the environment and the files of its part, and nothing of another one. A terminal does not reach it."""
    monkeypatch.setenv("GIVEN", "given")
    path = tmp_path / "test_one.py"
    path.write_text(INTERRUPTED)
    options = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null", "-s"]
    with forks_of_parts() as forks, ThreadPoolExecutor() as pool:
        for number in (1, 2):
            chosen = part(f"waits-{number}", sys.executable, "-m", "pytest", *options, str(path))
            (tmp_path / str(number)).mkdir()
            running = Running(chosen, tmp_path / str(number), forks)
            ended = pool.submit(running.run)
            until_sync(partial(_exists_below, running.directory, "begun"), 60.0)
            running.interrupt()
            ended.result()
            assert running.code == pytest.ExitCode.INTERRUPTED, running.lines
            assert "given None" in "\n".join(running.lines)


def _exists_below(directory: Path, name: str) -> bool:
    return any(directory.rglob(name))


class UntilReported(Running):
    """Runs until its progress has been asked for."""

    reported = Event()

    def run(self) -> None:
        assert self.reported.wait(60)
        self.code = 0

    def progress(self) -> str:
        self.reported.set()
        return Running.progress(self)


def test_progress_is_printed_while_parts_run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without a terminal, too."""
    assert run_all([part("slow")], seconds=tmp_path / "none.json", every_s=0.01, running=UntilReported) == []
    assert "0:00  slow\n" in capfd.readouterr().out


def test_longest_part_of_a_kind_that_has_a_place_begins_next() -> None:
    """A part that computes does not begin beside as many as have a place, and keeps no other from beginning. Its place
    is kept while such a part is left, and then given to others. It computes on the last core when none is left that
    waits."""
    one, two = part("one", computes=True), part("two", computes=True)
    three, four, five = part("three"), part("four"), part("five")
    assert next_part([one, two, three], [], PLACES) == one
    assert next_part([two, three], [one], PLACES) == three
    assert next_part([two, four], [one, three], PLACES) == four
    assert next_part([two, five], [one, three, four], PLACES) is None
    assert next_part([two], [one, three], PLACES) == two
    assert next_part([two], [one, three, four], PLACES) is None
    assert next_part([one], [two, replace(two, name="six")], PLACES) is None
    assert next_part([five, two], [three, four], PLACES) == two
    assert next_part([five], [three, four], PLACES) == five
    assert next_part([five], [one, three, four], PLACES) is None


def test_order_follows_the_seconds_that_were_measured(tmp_path: Path) -> None:
    """A part that has not run here counts as what its table says. Only parts that ran replace their figures."""
    path = tmp_path / "cache" / "seconds.json"
    short, long, new = part("short", seconds=90.0), part("long", seconds=10.0), part("new", seconds=50.0)
    keep_seconds(path, {"short": Measured(5.0, 1.0), "long": Measured(60.0, 2.0)})
    keep_seconds(path, {"long": Measured(70.0, 3.0)})
    measured = read_seconds(path)
    assert measured == {"short": Measured(5.0, 1.0), "long": Measured(70.0, 3.0)}
    seconds = {name: one.seconds for name, one in measured.items()}
    assert longest_first([short, new, long], seconds) == [long, new, short]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"core": 3}', '{"core": {"seconds": "x", "cpu_seconds": 1}}'])
def test_damaged_figures_are_no_figures(tmp_path: Path, text: str) -> None:
    """They decide an order only."""
    (tmp_path / "seconds.json").write_text(text)
    assert read_seconds(tmp_path / "seconds.json") == {}


def test_each_test_is_run_by_one_part_or_by_one_proof() -> None:
    """Nobody would run the tests of a folder that no part names. The smoke tests need a kube context."""
    files = [path.relative_to(ROOT / "tests").as_posix() for path in ROOT.glob("tests/**/test_*.py")]
    assert len(files) > 300
    by_part = [each.files() for each in PARTS]
    for file in files:
        parts = sum(file in files for files in by_part)
        proofs = sum(file in proof.files for proof in PROOFS)
        expected = (0, 0) if file.startswith("smoke") else (0, 1) if proofs else (1, 0)
        assert (parts, proofs) == expected, (
            f"{file} is run by {parts} parts and {proofs} proofs: see tests/suite/parts.py"
        )


def test_each_part_has_files_of_its_own() -> None:
    """pytest runs every test of the tree where it gets no path."""
    assert [part.name for part in PARTS if not part.words and not part.files()] == []


def test_what_proofs_name_exists() -> None:
    """Files, the folders whose change needs them, and what is left of them in the default suite."""
    named = [
        path
        for proof in PROOFS
        for path in (*[f"tests/{one}" for one in (*proof.files, *proof.covered_by)], *proof.rooms)
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []
    by_default = {file for part in PARTS for file in part.files()}
    assert {one for proof in PROOFS for one in proof.covered_by} <= by_default


def test_each_hazard_has_a_test_in_the_default_suite() -> None:
    """A proof is run at night, and a rule may be lost by day."""
    by_default = {file for part in PARTS for file in part.files()}
    lost = [name for name, tests in marked_tests().items() if by_default.isdisjoint(t.split("::")[0] for t in tests)]
    assert lost == []


def test_change_needs_the_proofs_of_the_rooms_that_it_touches() -> None:
    """Also a change of the proof itself; a folder with a longer name is another one."""
    proof = Proof("kills", ("cluster/test_kills.py",), ("services/oncelog/log_storage", "proto"), ())
    changed = ["docs/sdk.md", "proto/x.proto", "services/oncelog/log_storage_tools/x.py", "tests/cluster/test_kills.py"]
    assert proof.needed_for(changed) == ["proto/x.proto", "tests/cluster/test_kills.py"]
    assert proof.needed_for(["docs/sdk.md"]) == []


def git(repository: Path, *words: str, at: int = 1_700_000_000) -> list[str]:
    dates = {"GIT_AUTHOR_DATE": f"{at} +0000", "GIT_COMMITTER_DATE": f"{at} +0000"}
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *names, *words], cwd=repository, check=True, capture_output=True, text=True, env={**os.environ, **dates}
    )
    return done.stdout.split()


def test_change_is_what_was_committed_since_the_last_night(tmp_path: Path) -> None:
    """A day before the newest commit, by the times of commits; without so old a commit, all."""
    git(tmp_path, "init", "-b", "main")
    times = (0, 10, NIGHT_S + 20, NIGHT_S + 30)
    revisions = []
    for at in times:
        git(tmp_path, "commit", "--allow-empty", "-m", "one", at=1_700_000_000 + at)
        revisions += git(tmp_path, "rev-parse", "HEAD")
        if at < NIGHT_S:
            assert before_last_night(tmp_path) == revisions[0]
    assert before_last_night(tmp_path) == revisions[1]


def test_part_with_some_of_its_files_runs_these_alone() -> None:
    """`make test-changed` runs them; lint is run for each change."""
    chosen = Part("core", ("core/ledger",), 1.0).only({"core/ledger/test_quorum.py", "core/topic/test_topic.py"})
    assert chosen is not None
    assert chosen.files() == ["core/ledger/test_quorum.py"]
    assert Part("core", ("core/ledger",), 1.0).only({"core/topic/test_topic.py"}) is None
    assert part("lint", "make", "lint").only(set()) == part("lint", "make", "lint")
    seeds = replace(part("seeds", "python"), beside="simulation")
    assert seeds.only({"simulation/test_seeds.py"}) == seeds
    assert seeds.only({"core/topic/test_topic.py"}) is None


def test_load_computes_and_ends_with_its_block() -> None:
    """As many processes as it says, children of this one."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = children.read_text().split()
    with load(3):
        assert len(set(children.read_text().split()) - set(before)) == 3
    assert children.read_text().split() == before


@pytest.mark.parametrize(
    ("target", "packages"),
    [
        ("tools", "redis-server openjdk-17-jre-headless chromium kcat"),
        ("tools-java", "maven openjdk-17-jdk-headless"),
    ],
)
@pytest.mark.parametrize(
    ("ci", "typed", "installs"), [("true", None, True), ("", None, False), ("", "n\n", False), ("", "y\n", True)]
)
def test_no_system_package_is_installed_without_a_yes(
    tmp_path: Path, target: str, packages: str, ci: str, typed: str | None, installs: bool
) -> None:
    """Of a machine without these programs, by root: CI has nobody to ask; elsewhere only a yes at a terminal counts.
    Otherwise the command to run is named."""
    make = shutil.which("make")
    assert make is not None
    for name, script in (("id", "echo 0"), ("apt-get", f'echo "$@" >>{tmp_path}/asked')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, (typed or "").encode())
        done = subprocess.run(
            [make, "--no-print-directory", target],
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
    assert f"programs that are not installed: {packages}" in done.stdout
    asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
    assert (f"install -y -qq --no-install-recommends {packages}" in asked) == installs
    assert (done.returncode == 0) == installs
    assert (f"apt-get install {packages}" in done.stderr) != installs


def test_proofs_are_left_out_by_name() -> None:
    """`.ci/run` runs the new seeds while its other steps wait, so its proofs leave them out."""
    every = {f"proof/{proof.name}" for proof in PROOFS}
    assert {part.name for part in chosen_proofs([], None, ["new-seeds"])} == every - {"proof/new-seeds"}
    with pytest.raises(SystemExit, match="no proof is named new-seedz"):
        chosen_proofs([], None, ["new-seedz"])
