"""What is generated and committed equals what its one make target makes of its source."""

import re
import subprocess
from pathlib import Path

from tests.suite.requirements import needed
from tests.tidy.source import ROOT

WIRES = ("oncelog/core/formats/wire", "oncelog/wire", "oncelog_doors/wire")


def generated(folder: Path) -> dict[str, str]:
    """Return the text of each generated file by name."""
    return {path.name: path.read_text() for path in sorted(folder.glob("*_pb2*"))}


def stale(committed: dict[str, str], fresh: dict[str, str]) -> list[str]:
    """Return the names whose text differs, or that only one side has."""
    return sorted(name for name in committed.keys() | fresh.keys() if committed.get(name) != fresh.get(name))


def test_committed_wire_is_what_make_proto_makes(tmp_path: Path) -> None:
    """A protocol changed without `make proto`, or generated code edited by hand, is found."""
    done = subprocess.run(
        ["make", "--no-print-directory", "proto", f"OUT={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for wire in WIRES:
        fresh = generated(tmp_path / wire)
        assert len(fresh) == 2 * len(list((ROOT / "proto" / wire).glob("*.proto")))
        assert stale(generated(ROOT / "services" / wire), fresh) == []


def test_stale_wire_is_found() -> None:
    """The control: a file changed, a file too many and a file missing."""
    assert stale({"a": "1", "b": "1", "d": "1"}, {"a": "2", "c": "1", "d": "1"}) == ["a", "b", "c"]


def unpinned(lock: str) -> list[str]:
    """Return the requirements of a lock without an exact version or a hash, and lines that are neither."""
    entries = re.sub(r"\\\n", "", lock).splitlines()
    pinned = re.compile(r"[a-z0-9._-]+(\[[a-z,]+\])?==\S+(\s+;[^\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [entry for entry in entries if entry.strip() and not pinned.fullmatch(entry)]


def test_lock_pins_every_package_by_hash() -> None:
    """What is installed is what was tested, wherever it comes from."""
    assert unpinned((ROOT / "requirements.lock").read_text()) == []


def test_lock_without_hash_or_version_is_found() -> None:
    """The control: no hash, no exact version, an option."""
    digest = "--hash=sha256:" + "0" * 64
    assert len(unpinned(f"a==1\nb>=1 {digest}\n--option x\nc==1 \\\n    {digest}\n")) == 3


def test_lock_covers_every_dependency_of_the_project() -> None:
    """A dependency added without `make lock` is found."""
    wanted = {re.split(r"[<>=!~\[; ]", item)[0] for item in needed("all")}
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert {"grpcio", "sqlalchemy", "pyspark", "pytest"} <= wanted
    assert wanted - locked == set()
