"""The reading clients: those that follow a topic while faults happen, and the one that reads everything back."""

import asyncio
from collections.abc import AsyncIterator

from oncelog.cli.read.whole import batches_up_to_now
from oncelog.client.client import AsyncClient
from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import LedgerUnavailable, OncelogError
from oncelog.core.formats.message_id import EARLIEST, LATEST
from oncelog.verify.violation import Violation
from oncelog_lab.verdict import ReadEntry, ReaderTrail
from oncelog_lab.workload.publishers import ClientSetup

_RECONNECT_AFTER_S = 0.3
_READ_TIMEOUT_S = 60.0


class FollowingReader:
    """Follows one topic until it is cancelled: from its start, or from its end at the beginning of the run."""

    def __init__(self, trail: ReaderTrail, setup: ClientSetup) -> None:
        self.trail = trail
        #: why the reader stopped: it received something that breaks a rule, or an error that is not retriable
        self.failure: str | None = None
        self._setup = setup

    async def run(self) -> None:
        """The SDK resumes the stream after a fault. An error that it gives up on is reported, and the read restarts."""
        name, emit = self.trail.name, self._setup.emit
        while self.failure is None:
            try:
                await self._follow()
            except OncelogError as error:
                emit("error", client=name, error=f"{error} [{error.code}]")
                if not error.retriable:
                    self.failure = f"{name} cannot continue to read: {error}"
                await asyncio.sleep(_RECONNECT_AFTER_S)
            except Violation as violation:
                self.failure = str(violation)
                emit("error", client=name, error=self.failure)

    async def _follow(self) -> None:
        trail = self.trail
        start = LATEST if trail.first_index is None else EARLIEST
        async with await self._setup.access.connect() as client:
            reader = await client.create_reader(trail.topic, start=start)
            while True:
                try:
                    batch = await reader.read_batch()
                except LedgerUnavailable:
                    continue  # storage nodes are away: the reader goes on trying
                entry = read_entry(trail.topic, batch)
                self._setup.record.pauses.acknowledged(trail.name)
                # A reader that restarted receives again what it has seen.
                if trail.first_index is None or entry.first_index + len(entry.values) > trail.next_index:
                    trail.add(entry)


async def read_back(client: AsyncClient, topic: str) -> AsyncIterator[ReadEntry]:
    """All messages of a topic, up to the one that is its last now. Raises OncelogError."""
    reader = await client.create_reader(topic, start=EARLIEST)
    async for batch in batches_up_to_now(client, reader, timeout_s=_READ_TIMEOUT_S):
        yield read_entry(topic, batch)


def read_entry(topic: str, batch: MessageBatch) -> ReadEntry:
    return ReadEntry(topic, batch.first_index, [bytes(value) for value in batch.values], batch.sequence_ids)
