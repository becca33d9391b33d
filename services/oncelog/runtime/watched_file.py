"""A small file that is read again when it changes: certificates, keys and tokens are renewed while processes run.

A file that cannot be read any more, or whose new content is not accepted, leaves what was there before in force, and
that is logged once for each change: a renewal that goes wrong must not take the process down with it.
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
    """name: the setting or option that gave the path, for errors. parse: of the bytes; raises a core error."""

    def __init__(self, path: Path, name: str, parse: Callable[[bytes], ContentT]) -> None:
        """Raises InvalidArgument naming the setting when the file is missing, unreadable or refused by `parse`."""
        self.path = path
        self._name = name
        self._parse = parse
        self._signature = self._look()
        self._content = self._read()

    def get(self) -> ContentT:
        """What the file holds now; the content before while it holds nothing that can be used."""
        signature = self._look()
        if signature != self._signature:
            self._signature = signature
            try:
                self._content = self._read()
            except OncelogError as error:
                logger.error("a changed file is not used, what it held before goes on: %s", error.message)
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
            message = f"{self._name}: {self.path} cannot be read ({error.strerror}): correct the path or its rights"
            raise InvalidArgument(message, field=self._name) from error
        try:
            return self._parse(data)
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._name}: {self.path}: {error.message}", field=self._name) from error
