"""Checks the batches of a received frame, and lets other work run where that takes long."""

import asyncio
from collections.abc import Container
from typing import TypeAlias

from oncelog.core.errors import InvalidBatch, MessageTooLarge, OncelogError
from oncelog.core.formats.batch import BatchHeader, Checksum
from oncelog.core.formats.batch_check import BatchLimits, check_batch, unpacks
from oncelog.core.ids import SessionNumber
from oncelog.rpc.owner_codec import ReceivedPublish

#: A frame of a few KiB may decompress to gigabytes. After so many bytes other clients of this process get their turn.
UNPACKED_BYTES_PER_TURN = 1024 * 1024
#: Id deltas are decoded byte by byte, which takes so many times as long as decompressing a byte.
ID_BYTE_COST = 16

#: The header of a batch that can be stored, why it cannot be, or None: it is of no session, so nobody looked.
Checked: TypeAlias = BatchHeader | OncelogError | None


class BatchChecks:
    """Of all publish streams of one process."""

    def __init__(self, checksum: Checksum, limits: BatchLimits) -> None:
        self._checksum = checksum
        self._limits = limits

    async def check(self, frame: ReceivedPublish, sessions: Container[SessionNumber]) -> list[Checked]:
        """One result for each batch of the frame, in order. sessions: the open ones; batches of others are passed
        over."""
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
                unpacked_bytes += self._limits.raw_bytes_max  # how much was decompressed before the error is not known
            else:
                checked.append(header)
                unpacked_bytes += header.payload_raw_bytes if unpacks(header) else 0
                unpacked_bytes += header.ids_bytes * ID_BYTE_COST
            if unpacked_bytes >= UNPACKED_BYTES_PER_TURN:
                unpacked_bytes = 0
                await asyncio.sleep(0)
        return checked
