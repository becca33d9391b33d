"""Copies in a directory of the operator: their names, and how many are kept."""

import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from oncelog.core.era import Era
from oncelog.core.errors import InvalidArgument
from oncelog.metadata_store.copies.copy_file import CopyHeader
from oncelog.runtime.whole_file import replace_file

SUFFIX = ".oncelog-copy"
_NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}t[0-9]{2}-[0-9]{2}-[0-9]{2})z-era([0-9]{1,4})-[0-9a-f]{8}")
_TIME = "%Y-%m-%dt%H-%M-%S"


def name_of(created_ms: int, era: Era, unique: str) -> str:
    """unique: 8 hexadecimal digits. Names ascend with time."""
    return f"{datetime.fromtimestamp(created_ms / 1000, UTC):{_TIME}}z-era{era.number}-{unique}"


def name_by_content(header: CopyHeader, file: bytes) -> str:
    """The name of a file that is outside of the cluster: always the same, and of no other file. Raises
    InvalidArgument."""
    try:
        name = name_of(header.created_ms, header.era, sha256(file).hexdigest()[:8])
    except (ValueError, OverflowError, OSError):
        name = ""
    if created_of(name) <= 0:
        raise InvalidArgument(f"the copy is refused: its header has the time {header.created_ms} ms", field="copy")
    return name


def created_of(name: str) -> int:
    """In ms, to the second, by the name of the copy; 0 for a foreign name."""
    found = _NAME.fullmatch(name)
    try:
        return int(datetime.strptime(found[1], _TIME).replace(tzinfo=UTC).timestamp() * 1000) if found else 0
    except ValueError:
        return 0


def era_of_copy(name: str) -> int:
    """The number of the era, by the name of the copy; 0 for a foreign name."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found else 0


def keep_in(folder: Path, name: str, copy: bytes, *, count_max: int) -> Path:
    """Write the file, and delete the oldest copies above count_max, no other file. Raises OSError."""
    path = folder / (name + SUFFIX)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, copy, secret=True)
    ours = sorted(each for each in folder.glob(f"*{SUFFIX}") if created_of(each.name.removesuffix(SUFFIX)))
    for old in [each for each in ours if each != path][: max(0, len(ours) - count_max)]:
        old.unlink()
    return path
