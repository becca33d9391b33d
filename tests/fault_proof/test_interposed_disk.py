"""The layer under a storage node's disk: what a power cut loses, and which steps fail or end the process."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault_proof.faulty_cluster import ROOT
from tests.fault_proof.interposed_disk import (
    FAULTS_VARIABLE,
    DiskOrders,
    DiskRule,
    InterposedDisk,
    orders_path,
    trace_path,
)


class Node:
    """A directory and its layer. `restart` is a new process after a kill, `cut_power` one after a power cut."""

    def __init__(self, place: Path) -> None:
        self.data = place / "node"
        self.data.mkdir()
        self.faults = place / "faults"
        self.cuts = 0
        self.disk = InterposedDisk(self.data, self.faults)

    def restart(self) -> None:
        self.disk.close()
        self.disk = InterposedDisk(self.data, self.faults)

    def cut_power(self, *, seed: int = 0) -> None:
        self.cuts += 1
        DiskOrders(power_cuts=self.cuts, seed=seed).write(orders_path(self.faults, "node"))
        self.restart()

    def order(self, *rules: DiskRule, trace: bool = False) -> None:
        DiskOrders(rules, self.cuts, trace=trace).write(orders_path(self.faults, "node"))

    def create(self, name: str, content: bytes = b"", *, synced: bool = True) -> int:
        fd = self.disk.open(self.data / name, os.O_RDWR | os.O_CREAT)
        self.disk.pwrite(fd, content, 0)
        if synced:
            self.disk.fsync(fd)
            self.sync_directory()
        return fd

    def sync_directory(self) -> None:
        fd = self.disk.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        self.disk.fsync(fd)
        os.close(fd)

    def content(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted(self.data.iterdir())}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    own = Node(tmp_path)
    yield own
    own.disk.close()


def test_power_cut_loses_unsynced_writes_alone(node: Node) -> None:
    """Also over a restart without a power cut, which loses nothing."""
    fd = node.create("a", b"synced....")
    node.disk.pwritev(fd, [b"un", b"synced and longer"], 2)
    os.close(fd)
    node.restart()
    assert node.content() == {"a": b"syunsynced and longer"}
    node.cut_power()
    assert node.content() == {"a": b"synced...."}
    node.restart()
    assert node.content() == {"a": b"synced...."}


def test_power_cut_takes_back_overlapping_writes(node: Node) -> None:
    fd = node.create("a", b"0000000000")
    node.disk.pwrite(fd, b"11111", 0)
    node.disk.fdatasync(fd)
    node.disk.pwrite(fd, b"2222", 3)
    node.disk.pwrite(fd, b"3333", 5)
    os.close(fd)
    assert node.content() == {"a": b"1112233330"}
    node.cut_power()
    assert node.content() == {"a": b"1111100000"}


def test_file_opened_for_writing_alone_is_covered(node: Node) -> None:
    os.close(node.create("a", b"former"))
    fd = node.disk.open(node.data / "a", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    node.disk.write(fd, b"new")
    os.close(fd)
    assert node.content() == {"a": b"new"}
    node.cut_power()
    assert node.content() == {"a": b"former"}


def test_power_cut_takes_back_names_that_were_not_synced(node: Node) -> None:
    """A rename over another file, a removal and a creation: all are as they were, with their content."""
    for name in ("old", "removed", "moved"):
        os.close(node.create(name, name.encode()))
    os.close(node.create("new", b"synced, but not its name", synced=False))
    node.disk.rename(node.data / "moved", node.data / "old")
    node.disk.unlink(node.data / "removed")
    node.disk.mkdir(node.data / "folder")
    assert sorted(file.name for file in node.data.iterdir()) == ["folder", "new", "old"]
    node.cut_power()
    assert node.content() == {"moved": b"moved", "old": b"old", "removed": b"removed"}


def test_synced_names_survive_a_power_cut(node: Node) -> None:
    os.close(node.create("old", b"old"))
    fd = node.create("new", b"new", synced=False)
    node.disk.fsync(fd)
    os.close(fd)
    node.disk.rename(node.data / "new", node.data / "old")
    node.sync_directory()
    node.cut_power()
    assert node.content() == {"old": b"new"}


def test_file_of_a_synced_name_may_lose_its_content(node: Node) -> None:
    """The directory was synced, the file was not."""
    os.close(node.create("a", b"content", synced=False))
    node.sync_directory()
    node.cut_power()
    assert node.content() == {"a": b""}


def test_seeded_power_cut_keeps_some_pages(node: Node) -> None:
    """Each page is as before or as written, and the same seed gives the same result."""
    pages = 64
    fd = node.create("a", b"0" * 4096 * pages)
    node.disk.pwrite(fd, b"1" * 4096 * pages, 0)
    os.close(fd)
    node.cut_power(seed=5)
    data = node.content()["a"]
    found = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert set(found) == {b"0" * 4096, b"1" * 4096}


def test_failed_sync_is_not_repaired_by_the_next_sync(node: Node) -> None:
    """The kernel takes the pages for clean; only what is written again reaches the disk."""
    fd = node.create("a", b"00000000")
    node.disk.pwrite(fd, b"11111111", 0)
    node.order(DiskRule("fails", "sync", error="EIO"))
    with pytest.raises(OSError, match="injected EIO") as failed:
        node.disk.fdatasync(fd)
    assert failed.value.errno == errno.EIO
    node.disk.pwrite(fd, b"22", 2)
    node.disk.fdatasync(fd)
    os.close(fd)
    assert node.content() == {"a": b"11221111"}
    node.cut_power()
    assert node.content() == {"a": b"00220000"}


def test_rule_fails_the_named_step_once(node: Node) -> None:
    node.order(DiskRule("full", "write", "b*", error="ENOSPC", skip=1))
    fd = node.create("b", b"first")
    with pytest.raises(OSError, match="injected ENOSPC"):
        node.disk.pwrite(fd, b"second", 0)
    node.restart()
    fd = node.disk.open(node.data / "b", os.O_RDWR)
    node.disk.pwrite(fd, b"third", 0)
    os.close(fd)
    assert node.content() == {"b": b"third"}


def test_trace_names_each_step(node: Node) -> None:
    node.order(trace=True)
    fd = node.create("a.new", b"x")
    os.close(fd)
    node.disk.rename(node.data / "a.new", node.data / "a")
    node.disk.unlink(node.data / "a")
    steps = [line.split() for line in trace_path(node.faults, "node").read_text().splitlines()]
    expected = [["create", "a.new"], ["write", "a.new"], ["sync", "a.new"], ["sync_directory", "node"]]
    assert steps == [*expected, ["rename", "a"], ["unlink", "a"]]


def test_random_changes_are_taken_back_to_the_last_sync(node: Node) -> None:
    """Any order of changes, with a sync of everything now and then."""
    chance = random.Random("interposed disk")
    for _ in range(30):
        synced = node.content()
        for _ in range(chance.randrange(12)):
            _change(node, chance)
        node.cut_power()
        assert node.content() == synced
        for _ in range(chance.randrange(6)):
            _change(node, chance)
        for file in node.data.iterdir():
            fd = node.disk.open(file, os.O_RDWR)
            node.disk.fsync(fd)
            os.close(fd)
        node.sync_directory()
        before = node.content()
        node.cut_power()
        assert node.content() == before


def _change(node: Node, chance: random.Random) -> None:
    names = sorted(node.content())
    match chance.choice(("create", "write", "write", "rename", "unlink")):
        case "create":
            os.close(node.create(f"{chance.randrange(6)}", bytes([chance.randrange(256)]) * 9, synced=False))
        case "write" if names:
            fd = node.disk.open(node.data / chance.choice(names), os.O_RDWR)
            node.disk.pwrite(fd, bytes([chance.randrange(256)]) * chance.randrange(1, 9000), chance.randrange(9000))
            os.close(fd)
        case "rename" if names:
            node.disk.rename(node.data / chance.choice(names), node.data / f"{chance.randrange(6)}")
        case "unlink" if names:
            node.disk.unlink(node.data / chance.choice(names))


_PROGRAM = """
import os, sys
from pathlib import Path
from tests.fault_proof.interposed_disk import FAULTS_VARIABLE, InterposedDisk
data = Path(sys.argv[1])
InterposedDisk(data, Path(os.environ[FAULTS_VARIABLE])).install()
exec(sys.argv[2])
"""


def run_program(tmp_path: Path, program: str) -> "subprocess.CompletedProcess[str]":
    data = tmp_path / "node"
    data.mkdir(exist_ok=True)
    environment = {**os.environ, FAULTS_VARIABLE: str(tmp_path / "faults"), "PYTHONPATH": f"{ROOT}:{ROOT / 'services'}"}
    command = [sys.executable, "-c", _PROGRAM, str(data), program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_installed_layer_ends_the_process_after_the_step(tmp_path: Path) -> None:
    """The file has its new name, and the next statement is not reached."""
    rule = DiskRule("end", "rename", kill="after")
    DiskOrders([rule]).write(orders_path(tmp_path / "faults", "node"))
    ended = run_program(
        tmp_path,
        "fd = os.open(data / 'a', os.O_CREAT | os.O_RDWR); os.pwritev(fd, [b'x'], 0)\n"
        "(data / 'a').rename(data / 'b'); (data / 'c').mkdir()",
    )
    assert ended.returncode == -9, ended.stderr
    assert [file.name for file in (tmp_path / "node").iterdir()] == ["b"]


@pytest.mark.parametrize("program", ["(data / 'a').write_bytes(b'x')", "os.link(data / 'a', data / 'b')"])
def test_installed_layer_refuses_changes_that_it_cannot_see(tmp_path: Path, program: str) -> None:
    """So that a test never loses less than it believes."""
    ended = run_program(tmp_path, program)
    assert ended.returncode == 1
    assert "interposed disk" in ended.stderr
