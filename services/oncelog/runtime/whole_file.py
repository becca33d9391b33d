"""Replaces a file as a whole, or its bytes in place."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, secret: bool) -> None:
    """Replace the file atomically and durably; only its owner may read a secret. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def overwrite_file(path: Path, data: bytes) -> None:
    """Write over the bytes of the file, which is created if there is none. A full disk has space for that, where the
    file has had as many bytes; a reader or a crash may meet a part of it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        file.truncate()
