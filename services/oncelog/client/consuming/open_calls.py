"""What one consumer has given to the owners of its topics and not got answered: acknowledgements, negative ones and
reports, of all its partitions. `flush` and `close` wait for it."""

import asyncio
from collections.abc import Awaitable, Mapping
from itertools import zip_longest

from oncelog.client.consuming.acknowledging import AckFuture, joined, promise
from oncelog.client.consuming.consumed_messages import ConsumedMessages
from oncelog.client.consuming.received import Group, counts_between
from oncelog.core.delivery.events import COUNTED_MAX
from oncelog.core.errors import DeadlineExceeded
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.index_set import IndexSet


class OpenCalls:
    """Of one consumer."""

    def __init__(self, partitions: Mapping[int, ConsumedMessages], what: str, timeout_ms: int | None) -> None:
        """what: topic and subscription, for errors. timeout_ms: of `within`; None: no limit."""
        self._partitions = partitions
        self._what = what
        self._timeout_ms = timeout_ms
        #: of each negative acknowledgement that is open; done when it is not any more
        self._nacks: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """Acknowledgements, negative or not, that are not answered; each of several partitions counts in each."""
        return len(self._nacks) + sum(runs.acks.open_count for runs in self._partitions.values())

    async def settled(self, *, reports: bool) -> None:
        """Return when what was given before is answered, or the consumer has ended. Raises no error. reports: also
        what the consumer has reported of the messages that it has received."""
        if self._nacks:
            await asyncio.wait(tuple(self._nacks))
        await asyncio.gather(*(runs.acks.settled(reports=reports) for runs in self._partitions.values()))

    async def within(self, settling: Awaitable[None]) -> DeadlineExceeded | None:
        """Wait for it. Returns the error that says how many calls were not answered in time."""
        try:
            async with asyncio.timeout(None if self._timeout_ms is None else self._timeout_ms / 1000):
                await settling
        except TimeoutError as error:
            late = DeadlineExceeded(self._late())
            late.__cause__ = error
            return late
        return None

    def _late(self) -> str:
        drivers = [runs.driver for runs in self._partitions.values()]
        why = next((f": {driver.core.trouble.message}" for driver in drivers if driver.core.trouble is not None), "")
        if not (count := self.count):
            return f"{self._what}: the reports of the consumer were not answered within {self._timeout_ms} ms{why}"
        are = "acknowledgement was" if count == 1 else "acknowledgements were"
        outcome = "the messages may be delivered again"
        return f"{self._what}: {count} {are} not answered within {self._timeout_ms} ms; {outcome}{why}"

    async def nack(
        self, groups: Mapping[Group, IndexSet], counts: Mapping[Group, dict[int, int]], delay_ms: int | None
    ) -> None:
        """Acknowledge negatively. counts: as of `delivery_counts`."""
        call = asyncio.get_running_loop().create_future()
        self._nacks.add(call)
        try:
            for group in groups:
                group.runs.acks.send_before()
            # The owner writes a count for each message, so each partition gets one bounded request after the other.
            for parts in zip_longest(*(indexes.parts(COUNTED_MAX) for indexes in groups.values())):
                futures: list[tuple[TopicName, AckFuture]] = []
                for group, ranges in zip(groups, parts, strict=True):
                    if ranges is not None:
                        on_result, future = promise()
                        futures.append((group.runs.driver.topic, future))
                        of_part = counts_between(counts.get(group, {}), ranges[0].first, ranges[-1].last)
                        group.runs.driver.nack(group.seek_epoch, ranges, of_part, delay_ms, on_result)
                await joined(futures)
        finally:
            self._nacks.discard(call)
            call.set_result(None)
