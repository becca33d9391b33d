"""Validates the batches of a received frame, and yields to other tasks when that takes long.

An entry of a gateway's client is refused while the cluster's level is below AS_IT_CAME_VERSION: a process that cannot
read it may take part, and might own the topic next (hazard format-of-a-later-version).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from oncelog.core.errors import InvalidBatch, MessageTooLarge, OncelogError
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import AS_IT_CAME, AS_IT_CAME_VERSION, BatchHeader, Checksum, PayloadFormat
from oncelog.core.formats.batch_check import BatchLimits, check_batch, takes_long, unpacks
from oncelog.core.formats.compression import Compression, require, require_pulsar
from oncelog.core.ids import SessionNumber
from oncelog.rpc.codecs.owner_codec import ReceivedPublish

#: A frame of a few KiB may decompress to gigabytes. After this many bytes other tasks get a turn.
UNPACKED_BYTES_PER_TURN = 1024 * 1024
#: Id deltas are decoded byte by byte. One byte takes this many times as long as decompressing one.
ID_BYTE_COST = 16
#: The same of a byte of a small entry of a gateway's client, whose messages are read one by one.
MESSAGE_BYTE_COST = 16

#: The header of a valid batch; why it is invalid; or None: it belongs to no open session and was not validated.
Checked: TypeAlias = BatchHeader | OncelogError | None


class NamedSession(Protocol):
    """producer_name: for which it was opened."""

    producer_name: str


class BatchChecks:
    """Validates for all publish streams of one process."""

    def __init__(self, checksum: Checksum, limits: BatchLimits, *, level: Callable[[], int]) -> None:
        """level: of the cluster, as this process knows it. Raises CompressionUnavailable if a library is not installed:
        this process could not check every batch."""
        for compression in Compression:
            require(compression)
        require_pulsar()
        self._checksum = checksum
        self._limits = limits
        self._level = level

    async def check(self, frame: ReceivedPublish, sessions: Mapping[SessionNumber, NamedSession]) -> list[Checked]:
        """One result for each batch of the frame, in order. sessions: the open ones; other batches are skipped."""
        batches = [
            (data, None if (session := sessions.get(number)) is None else session.producer_name)
            for number, data in zip(frame.sessions, frame.batches, strict=True)
        ]
        if any(name is not None and takes_long(data) for data, name in batches):
            # All of them: a change of threads takes as long as the check of most batches.
            return await asyncio.to_thread(lambda: [self._checked(*each) for each in batches])
        checked: list[Checked] = []
        unpacked_bytes = 0
        for data, name in batches:
            found = self._checked(data, name)
            checked.append(found)
            unpacked_bytes += self._unpacked_bytes(found, data)
            if unpacked_bytes >= UNPACKED_BYTES_PER_TURN:
                unpacked_bytes = 0
                await asyncio.sleep(0)
        return checked

    def _checked(self, data: memoryview, producer_name: str | None) -> Checked:
        """producer_name: None: of no open session."""
        if producer_name is None:
            return None
        try:
            return self._header(data, producer_name)
        except (InvalidBatch, MessageTooLarge, UnknownFormat) as error:
            return error

    def _unpacked_bytes(self, found: Checked, data: memoryview) -> int:
        """How long the check took, in decompressed bytes."""
        if found is None:
            return 0
        if isinstance(found, OncelogError):
            return self._limits.raw_bytes_max  # unknown how much was decompressed before the error
        unpacked = found.payload_raw_bytes if unpacks(found) else 0
        if found.payload_format in AS_IT_CAME:
            unpacked += len(data) * MESSAGE_BYTE_COST
        return unpacked + found.ids_bytes * ID_BYTE_COST

    def _header(self, data: memoryview, producer_name: str) -> BatchHeader:
        """Raises InvalidBatch, MessageTooLarge, and UnknownFormat for one that needs a higher level."""
        header = check_batch(data, self._checksum, self._limits, producer_name=producer_name)
        if header.payload_format in AS_IT_CAME and (level := self._level()) < AS_IT_CAME_VERSION:
            client = PayloadFormat(header.payload_format).name.capitalize()
            raise UnknownFormat(
                f"entries of clients of {client} (payload format {header.payload_format}) need level "
                f"{AS_IT_CAME_VERSION} of the cluster, which has level {level}: end the upgrade with `oncelog admin "
                "cluster finalize`",
                payload_format=header.payload_format,
                level=level,
            )
        return header
