"""Validates the batches of a received frame, and yields to other tasks when that takes long."""

import asyncio
from collections.abc import Container
from typing import TypeAlias

from oncelog.core.errors import InvalidBatch, MessageTooLarge, OncelogError
from oncelog.core.formats.batch import BatchHeader, Checksum
from oncelog.core.formats.batch_check import BatchLimits, check_batch, unpacks
from oncelog.core.formats.compression import Compression, require
from oncelog.core.ids import SessionNumber
from oncelog.rpc.codecs.owner_codec import ReceivedPublish

#: A frame of a few KiB may decompress to gigabytes. After this many bytes other tasks get a turn.
UNPACKED_BYTES_PER_TURN = 1024 * 1024
#: Id deltas are decoded byte by byte. One byte takes this many times as long as decompressing one.
ID_BYTE_COST = 16

#: The header of a valid batch; why it is invalid; or None: it belongs to no open session and was not validated.
Checked: TypeAlias = BatchHeader | OncelogError | None


class BatchChecks:
    """Validates for all publish streams of one process."""

    def __init__(self, checksum: Checksum, limits: BatchLimits) -> None:
        """Raises CompressionUnavailable if a library is not installed: this process could not check every batch."""
        for compression in Compression:
            require(compression)
        self._checksum = checksum
        self._limits = limits

    async def check(self, frame: ReceivedPublish, sessions: Container[SessionNumber]) -> list[Checked]:
        """One result for each batch of the frame, in order. sessions: the open ones; other batches are skipped."""
        checked: list[Checked] = []
        unpacked_bytes = 0
        for number, data in zip(frame.sessions, frame.batches, strict=True):
            if number not in sessions:
                checked.append(None)
                continue
            try:
                header = check_batch(data, self._checksum, self._limits)
            except (InvalidBatch, MessageTooLarge) as error:
                checked.append(error)
                unpacked_bytes += self._limits.raw_bytes_max  # unknown how much was decompressed before the error
            else:
                checked.append(header)
                unpacked_bytes += header.payload_raw_bytes if unpacks(header) else 0
                unpacked_bytes += header.ids_bytes * ID_BYTE_COST
            if unpacked_bytes >= UNPACKED_BYTES_PER_TURN:
                unpacked_bytes = 0
                await asyncio.sleep(0)
        return checked
