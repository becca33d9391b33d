"""The reading clients: those that follow a topic while faults happen, and the one that reads everything back."""

import asyncio
from collections.abc import AsyncIterator

from oncelog.client.messages import MessageBatch
from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import EARLIEST, LATEST
from oncelog.lab.chaos.access import Access
from oncelog.lab.chaos.checker import ReadEntry, ReaderTrail
from oncelog.lab.chaos.report_lines import Record, Say
from oncelog.verify.violation import Violation

_AGAIN_S = 0.3
_READ_TIMEOUT_S = 60.0


class FollowingReader:
    """Follows one topic from its start, or from its end as that is when it begins, until it is cancelled."""

    def __init__(self, trail: ReaderTrail, access: Access, record: Record, say: Say) -> None:
        self.trail = trail
        #: the rule that what it was given breaks; it reads no further then
        self.failure: str | None = None
        self._access = access
        self._record = record
        self._say = say

    async def run(self) -> None:
        """The SDK takes the stream up again through every fault; what it gives up on is said, and begun again."""
        name = self.trail.name
        while self.failure is None:
            try:
                await self._follow()
            except OncelogError as error:
                self._say("trouble", client=name, error=f"{error} [{error.code}]")
                if not error.retriable:
                    self.failure = f"{name} can read no further: {error}"
                await asyncio.sleep(_AGAIN_S)
            except Violation as violation:
                self.failure = str(violation)
                self._say("trouble", client=name, error=self.failure)

    async def _follow(self) -> None:
        trail = self.trail
        fresh = trail.first_index is None
        async with await self._access.connect() as client:
            reader = await client.create_reader(trail.topic, start=LATEST if fresh else EARLIEST)
            while True:
                batch = await reader.read_batch()
                self._record.pulse.acked(trail.name)
                entry = read_entry(trail.topic, batch)
                # One that had to begin again is given what it has seen already.
                if trail.first_index is None or entry.first_index + len(entry.values) > trail.next_index:
                    trail.add(entry)


async def read_back(access: Access, topic: str) -> AsyncIterator[ReadEntry]:
    """Everything from the topic's first message to the one that is its last now. Raises OncelogError."""
    async with await access.connect() as client:
        last = await client.last_message_id(topic)
        if last is None:
            return
        reader = await client.create_reader(topic, start=EARLIEST)
        while True:
            batch = await reader.read_batch(timeout=_READ_TIMEOUT_S)
            yield read_entry(topic, batch)
            if batch.message_id(-1) >= last:
                return


def read_entry(topic: str, batch: MessageBatch) -> ReadEntry:
    """As the checker takes it."""
    return ReadEntry(topic, batch.first_index, [bytes(value) for value in batch.values])
