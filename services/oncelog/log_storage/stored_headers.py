"""Reads the headers of stored entries at start: the last_add_confirmed that an entry carried is not in the index."""

import os
from types import TracebackType
from typing import Self

from oncelog.core.formats.entry import HEADER_BYTES, EntryHeader, peek_header
from oncelog.log_storage.directory import StorageDirectory
from oncelog.log_storage.segments import RECORD, RecordLocation


class StoredHeaders:
    """Holds one file open: the records come segment by segment. The scan has verified what is read here."""

    def __init__(self, directory: StorageDirectory) -> None:
        self._directory = directory
        self._segment_id = -1
        self._fd = -1

    def read(self, location: RecordLocation) -> EntryHeader:
        """Raises CorruptEntry when the record is intact and no entry."""
        if location.segment_id != self._segment_id:
            self._close()
            self._fd = os.open(self._directory.segment_path(location.segment_id), os.O_RDONLY)
            self._segment_id = location.segment_id
        return peek_header(os.pread(self._fd, HEADER_BYTES, location.offset + RECORD.size))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()
