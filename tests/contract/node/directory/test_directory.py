"""The directory of a storage node: only an empty one is formatted; a foreign, used or incomplete one is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import oncelog
from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.directory.identity import NOT_FORMATTED, Identity
from oncelog.log_storage.directory.storage_directory import StorageDirectory, cluster_of
from tests.contract.node.directory.small_log import (
    CLUSTER,
    add,
    as_found,
    crash_image,
    examine,
    replay,
    segment_files,
    write_groups,
)

OTHER_CLUSTER = "99999999222233334444555555555555"
SEGMENT_BYTES = 4608


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


def open_directory(path: Path, cluster_id: str = CLUSTER) -> StorageDirectory:
    return StorageDirectory.open(path, cluster_id, segment_bytes=SEGMENT_BYTES)


def refusal(path: Path, cluster_id: str = CLUSTER) -> str:
    """The message of the refusal. Fails if the directory is accepted."""
    with pytest.raises(StorageDirectoryRefused) as caught:
        open_directory(path, cluster_id)
    return caught.value.message


def test_absent_directory_is_formatted_once(path: Path) -> None:
    """The identity is created with the directory, and every later start finds the same one."""
    directory = open_directory(path / "deeper")
    assert directory.identity.cluster_id == CLUSTER
    assert directory.segment_ids == [1]
    directory.close()
    again = open_directory(path / "deeper")
    assert again.identity == directory.identity
    again.close()


def test_root_of_a_new_volume_is_formatted(path: Path) -> None:
    """ext4 puts lost+found into a volume's root; that is not user data."""
    (path / "lost+found").mkdir(parents=True)
    open_directory(path).close()


def test_wiped_directory_is_a_new_node(tmp_path: Path) -> None:
    """Even at the same address and path: the new node has no promises of the old one to keep."""
    incarnations = set()
    for name in ("first", "second"):
        directory = open_directory(tmp_path / name)
        incarnations.add(directory.identity.incarnation)
        directory.close()
    assert len(incarnations) == 2


def test_cluster_id_may_have_dashes(path: Path) -> None:
    """Both are the same UUID."""
    open_directory(path, "11111111-2222-3333-4444-555555555555").close()
    open_directory(path, CLUSTER).close()


def test_directory_with_other_files_is_refused_and_unchanged(path: Path) -> None:
    """A wrong path in the settings must not turn a home directory into a storage node."""
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")
    message = refusal(path)
    assert "thesis.txt" in message
    assert [file.name for file in path.iterdir()] == ["thesis.txt"]


def test_segments_without_an_identity_are_refused(path: Path) -> None:
    """A lost identity must not become a new, empty node over old entries."""
    write_groups(path, [[add(1, 0)]])
    (path / "identity.json").unlink()
    assert "without identity.json" in refusal(path)
    assert segment_files(path)


def test_directory_of_another_cluster_is_refused(path: Path) -> None:
    """The message names the path, both clusters, and what to do: nothing that loses data."""
    open_directory(path).close()
    message = refusal(path, OTHER_CLUSTER)
    assert all(part in message for part in (str(path), CLUSTER, OTHER_CLUSTER, "keep this directory"))


@pytest.mark.hazard("emptied-zookeeper")
def test_directory_names_its_cluster(tmp_path: Path) -> None:
    """What a storage node answers: nothing for an absent or new directory, also on a fresh volume."""
    path = tmp_path / "node"
    assert cluster_of(path) == ""
    (path / "lost+found").mkdir(parents=True)
    assert cluster_of(path) == ""
    StorageDirectory.open(path, CLUSTER, segment_bytes=8 << 20).close()
    assert cluster_of(path) == CLUSTER == json.loads((path / "identity.json").read_text())["cluster_id"]


def test_newer_format_is_refused(path: Path) -> None:
    """The meaning of its fields is not guessed."""
    open_directory(path).close()
    identity = json.loads((path / "identity.json").read_text())
    (path / "identity.json").write_text(json.dumps(identity | {"format": 3}))
    assert "format 3" in refusal(path)


def test_damage_in_any_byte_of_the_identity_is_refused(path: Path) -> None:
    """A changed digit would be another node, or another first segment. Only spaces between fields have no meaning."""
    open_directory(path).close()
    file = path / "identity.json"
    whole = file.read_bytes()
    identity = Identity.decode(whole, file)
    for offset in range(len(whole)):
        file.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with pytest.raises(StorageDirectoryRefused):
            open_directory(path)
        file.write_bytes(whole[:offset])
        if whole[offset:].strip():
            with pytest.raises(StorageDirectoryRefused):
                open_directory(path)
    file.write_bytes(whole)
    directory = open_directory(path)
    assert directory.identity == identity
    directory.close()


def test_interrupted_formatting_continues_at_the_next_start(path: Path) -> None:
    """Nothing is stored until the identity names the first segment, so the leftovers of a killed start are replaced."""
    open_directory(path).close()
    formatted = Identity.decode((path / "identity.json").read_bytes(), path)
    begun = Identity(CLUSTER, formatted.incarnation, formatted.created_ms, NOT_FORMATTED)
    (path / "identity.json").write_bytes(begun.encode())
    (path / "identity.json.tmp").write_bytes(b"{")
    segment_files(path)[0].write_bytes(b"half a header")
    directory = open_directory(path)
    assert directory.identity == formatted
    assert list(directory.scan()) == []
    directory.close()
    (path / "identity.json").unlink()
    for file in segment_files(path):
        file.unlink()
    (path / "segments").rmdir()
    open_directory(path).close()


def test_second_process_is_refused(path: Path) -> None:
    """Two writers of one journal would destroy it. The message names the process that uses it."""
    directory = open_directory(path)
    program = (
        "import sys; from pathlib import Path\n"
        "from oncelog.log_storage.directory.storage_directory import StorageDirectory\n"
        "from oncelog.core.errors import StorageDirectoryRefused\n"
        "try: StorageDirectory.open(Path(sys.argv[1]), sys.argv[2])\n"
        "except StorageDirectoryRefused as error: print(error.message); sys.exit(7)\n"
    )
    services = str(Path(oncelog.__file__).parent.parent)
    arguments = [sys.executable, "-c", program, str(path), CLUSTER]
    second = subprocess.run(
        arguments, env={"PYTHONPATH": services}, capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 7, second.stderr
    assert "in use by another process" in second.stdout
    directory.close()
    third = subprocess.run(
        arguments, env={"PYTHONPATH": services}, capture_output=True, text=True, timeout=60, check=False
    )
    assert third.returncode == 0, third.stderr


def test_failed_start_releases_the_lock(path: Path) -> None:
    """In one process, too: the next attempt must fail with the real reason, not because of its own lock."""
    open_directory(path).close()
    for _ in range(2):
        assert OTHER_CLUSTER in refusal(path, OTHER_CLUSTER)
    open_directory(path).close()


@pytest.mark.hazard("damaged-fence")
def test_missing_segment_is_a_hole(path: Path) -> None:
    """Without it the node would report entries as missing that it acknowledged."""
    write_groups(path, [[add(1, entry, size=1500)] for entry in range(7)], segment_bytes=SEGMENT_BYTES)
    files = segment_files(path)
    files[1].unlink()
    found, (hole,) = examine(path, segment_bytes=SEGMENT_BYTES)
    assert (hole.segment_id, hole.start) == (2, 0)
    assert [entry_id for _, _, entry_id, _ in found] == [0, 2, 3, 4, 5, 6]


def test_all_segments_missing_is_refused(path: Path) -> None:
    """An empty volume mounted over `segments` must not look like a fresh node."""
    write_groups(path, [[add(1, 0)]])
    segment_files(path)[0].unlink()
    assert "holds no segment, but the node had segment 0000000000000001" in refusal(path)
    (path / "segments").rmdir()
    assert "check that the volume is mounted" in refusal(path)


def test_files_below_the_first_segment_are_removed(path: Path) -> None:
    """Reclaiming first raises first_segment_id and then removes files; a kill in between leaves files."""
    write_groups(path, [[add(1, entry, size=1500)] for entry in range(7)], segment_bytes=SEGMENT_BYTES)
    identity = Identity.decode((path / "identity.json").read_bytes(), path)
    moved = Identity(identity.cluster_id, identity.incarnation, identity.created_ms, first_segment_id=3)
    (path / "identity.json").write_bytes(moved.encode())
    (path / "segments" / "0000000000000009.tmp").write_bytes(b"a segment that was being made")
    directory = open_directory(path)
    assert directory.segment_ids == [3, 4, 5, 6, 7]
    assert [record.entry_id for record in directory.scan()] == [2, 3, 4, 5, 6]
    directory.close()
    assert [file.name for file in (path / "segments").iterdir() if "tmp" in file.name] == []


def test_damaged_header_is_not_a_torn_start(path: Path) -> None:
    """A segment gets its name only when its header is durable."""
    open_directory(path).close()
    file = segment_files(path)[0]
    file.write_bytes(bytes(SEGMENT_BYTES))
    found, (header, _behind) = examine(path, segment_bytes=SEGMENT_BYTES)
    assert (found, header.start, header.what) == ([], 0, "segment header")


def test_copied_directory_has_the_same_identity(path: Path, tmp_path: Path) -> None:
    """A node that is moved to another disk keeps its promises. ZooKeeper, not the disk, prevents running both
    copies."""
    write_groups(path, [[add(1, 0)]])
    image = crash_image(path, tmp_path / "moved")
    assert replay(image) == as_found([add(1, 0)])
    assert (image / "identity.json").read_bytes() == (path / "identity.json").read_bytes()


def test_directory_that_cannot_be_opened_leaves_no_descriptor_open(path: Path) -> None:
    """A supervisor that retries for hours in one process must not run out of descriptors."""
    write_groups(path, [[add(7, 0, size=100)]], segment_bytes=SEGMENT_BYTES)
    (file,) = segment_files(path)
    file.unlink()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(StorageDirectoryRefused):
            open_directory(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.hazard("newer-record-taken-for-damage")
def test_record_of_a_newer_version_refuses_the_start(path: Path) -> None:
    """It is sound, so it makes no hole, and nothing is changed: the newer version finds all as it was."""
    write_groups(path, [[add(7, 0)], [add(7, 1)._replace(kind=77), add(7, 2)]])
    before = {file.name: file.read_bytes() for file in segment_files(path)}
    with pytest.raises(StorageDirectoryRefused, match=r"segment 1, offset \d+: a record of kind 77.*newer version"):
        replay(path)
    assert {file.name: file.read_bytes() for file in segment_files(path)} == before
