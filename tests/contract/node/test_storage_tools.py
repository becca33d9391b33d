"""`oncelog storage`: for the directory of a stopped storage node. Only mark-restored changes anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from typer.testing import CliRunner, Result

from oncelog.cli.app import app
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.starts import RESTORED
from oncelog.log_storage.directory.directory_starts import read_start
from oncelog.log_storage.directory.segment_format import SegmentRecord
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from tests.contract.node.directory.small_log import CLUSTER, segment_files, write_groups


def entry(ledger_id: int, entry_id: int) -> SegmentRecord:
    body = b"x" * 300
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(ledger_id), EntryId(entry_id), EntryId(entry_id - 1), 0, OwnerEpoch(3), 0,
        entry_id, 0, 1, len(body), TopicId("0" * 32),
    )  # fmt: skip
    return SegmentRecord(RecordKind.ADD, ledger_id, entry_id, encode_header(header, body, crc32c) + body)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ledger 7 with two entries and a fence; ledger 8 was erased."""
    path = tmp_path / "node"
    fence = SegmentRecord(RecordKind.FENCE, 7, 0)
    erased = SegmentRecord(RecordKind.LEDGER_ERASED, 8, 1)
    write_groups(path, [[entry(7, 0)], [entry(8, 0)], [entry(7, 1)], [fence, erased]])
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["storage", *arguments])


def output(*arguments: str) -> Any:
    result = run(*arguments, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def images(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def test_inspect_shows_what_the_directory_holds(path: Path) -> None:
    """Identity, segments, ledgers with their fences and tombstones."""
    before = images(path)
    found = output("inspect", str(path))
    assert found["cluster_id"] == CLUSTER
    assert [segment["segment"] for segment in found["segments"]] == ["0000000000000001"]
    assert found["live_bytes"] == 2 * (36 + 396)
    (seven, eight) = found["ledgers"]
    assert (seven["ledger_id"], seven["entries"], seven["last_entry"], seven["fenced"]) == (7, 2, 1, True)
    assert (eight["ledger_id"], eight["entries"], eight["erased"], eight["deleted"]) == (8, 0, True, True)
    assert (found["holes"], found["limbo_below"]) == ([], 0)
    assert images(path) == before, "a tool changes nothing"
    table = run("inspect", str(path)).stdout
    assert "erased, deleted" in table
    assert "792 B" in table, "the bytes of the entries of ledger 7"


def test_fsck_of_a_sound_directory_succeeds(path: Path) -> None:
    """Exit code 0, also with a torn write at the end."""
    result = run("fsck", str(path))
    assert (result.exit_code, "ok: everything was read" in result.stdout) == (0, True)


def test_fsck_names_damage_and_fails(path: Path) -> None:
    """The hole is new; after a start that put the node into limbo it is known."""
    flip(segment_files(path)[0], 512 + 100)
    result = run("fsck", str(path))
    assert result.exit_code == 1
    assert "record 0 of 1 of a group, labelled ADD of ledger 7, entry 0 (NEW)" in result.stdout
    assert "DAMAGED" in result.stdout
    write_groups(path, [], ledger_counter=50)
    found = output("fsck", str(path))
    assert [hole["known"] for hole in found["holes"]] == [True, True]
    assert (found["sound"], found["limbo_below"]) == (False, 50)
    assert output("inspect", str(path))["ledgers"][0]["limbo"]


def test_fsck_finds_an_entry_that_was_damaged_before_it_was_stored(path: Path) -> None:
    """The record's checksum is right, the entry's own is not."""
    bad = entry(9, 0)
    write_groups(path, [[bad._replace(body=bytes(bad.body)[:-1] + b"y")]])
    found = output("fsck", str(path))
    assert [(one["ledger_id"], one["entry_id"]) for one in found["bad_entries"]] == [(9, 0)]
    assert not found["sound"]


def test_inspect_prints_the_records_of_a_ledger(path: Path) -> None:
    """Erased ones are not live."""
    lines = [json.loads(line) for line in run("inspect", str(path), "--ledger", "7", "-o", "json").stdout.splitlines()]
    assert [(line["kind"], line["number"]) for line in lines] == [("add", 1), ("add", 3), ("fence", 4)]
    assert [line["base_index"] for line in lines[:2]] == [0, 1]
    assert lines[0]["live"]
    erased = [json.loads(line) for line in run("inspect", str(path), "--ledger", "8", "-o", "json").stdout.splitlines()]
    assert [(line["kind"], line.get("live")) for line in erased] == [("add", False), ("ledger_erased", None)]


def test_directory_in_use_is_refused(path: Path) -> None:
    """Its process would change it while it is read."""
    directory = StorageDirectory.open(path, CLUSTER)
    result = run("inspect", str(path))
    directory.close()
    assert result.exit_code == 1
    assert "in use by another process" in result.stderr


def test_damaged_identity_is_told_and_the_rest_is_shown(path: Path) -> None:
    """The headers of the segments state the same cluster and incarnation."""
    incarnation = output("inspect", str(path))["incarnation"]
    flip(path / "identity.json", 30)
    found = output("fsck", str(path))
    assert found["incarnation"] == incarnation
    assert "identity.json" in found["identity_damage"]
    assert (found["sound"], found["ledger_count"]) == (False, 1)
    assert run("fsck", str(path)).exit_code == 1


def test_other_directory_is_refused(tmp_path: Path) -> None:
    """Nothing is created in it."""
    result = run("inspect", str(tmp_path))
    assert result.exit_code == 1
    assert "not the directory of a storage node" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["inspect", "fsck"])
def test_help_shows_an_example(command: str) -> None:
    """A help text teaches by an example that can be copied."""
    assert f"oncelog storage {command} /var/lib/oncelog" in run(command, "--help").stdout


@pytest.mark.hazard("directory-went-back")
def test_mark_restored_marks_the_next_start(path: Path) -> None:
    """A directory that is in use is refused."""
    marked = run("mark-restored", str(path))
    assert (marked.exit_code, "marked" in marked.stdout) == (0, True)
    assert read_start(path).start_id == RESTORED
    assert json.loads(run("mark-restored", str(path), "-o", "json").stdout) == {"path": str(path), "marked": True}
    directory = StorageDirectory.open(path, CLUSTER)
    try:
        assert run("mark-restored", str(path)).exit_code == 1
    finally:
        directory.close()
