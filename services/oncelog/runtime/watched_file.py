"""A small file that is read again when it changes: certificates, keys and tokens are renewed at run time.

When a changed file cannot be read, or its new content is not valid, the old content stays in use, and an error is
logged once for each change: a failed renewal must not end the process.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from oncelog.core.errors import InvalidArgument, OncelogError

logger = logging.getLogger(__name__)

BYTES_MAX = 1 << 20
ContentT = TypeVar("ContentT")
_Signature = tuple[int, int, int] | None


class WatchedFile(Generic[ContentT]):
    """name: the setting or option with the path, for errors. parse: parses the bytes; raises a core error."""

    def __init__(self, path: Path, name: str, parse: Callable[[bytes], ContentT]) -> None:
        """Raises InvalidArgument naming the setting when the file is missing, unreadable or refused by `parse`."""
        self.path = path
        self._name = name
        self._parse = parse
        self._signature = self._look()
        self._content = self._read()

    def get(self) -> ContentT:
        """The file's current content; the previous content while the file cannot be used."""
        signature = self._look()
        if signature != self._signature:
            self._signature = signature
            try:
                self._content = self._read()
            except OncelogError as error:
                logger.error("cannot use a changed file, keeping its previous content: %s", error.message)
        return self._content

    def _look(self) -> _Signature:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> ContentT:
        try:
            with self.path.open("rb") as file:
                data = file.read(BYTES_MAX)
        except OSError as error:
            message = f"{self._name}: cannot read {self.path} ({error.strerror}): correct the path or its permissions"
            raise InvalidArgument(message, field=self._name) from error
        try:
            return self._parse(data)
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._name}: {self.path}: {error.message}", field=self._name) from error
