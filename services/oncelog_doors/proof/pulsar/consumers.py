"""Consumers on the left side of the proof: of the acknowledgements, the log gets what Pulsar's broker would write.

What the broker has in memory alone, this door has in memory. It is lost when the door is killed, and the log delivers
these messages again. PIP-299's pause is switched on. While it withholds new messages, nothing is delivered: no history
gives a message back meanwhile.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import SeekEpoch
from oncelog_doors.log_client.log_consumer import LogConsumer
from oncelog_doors.proof.pulsar.cursor import PulsarCursor
from oncelog_doors.pulsar.ports import Settled, TakenEntry


class PulsarSubscription:
    """What a broker has of one subscription.

    ledgers: {number of a delivered message in the topic: its ledger}. written: in the log. delivers: set while new
    messages are not withheld.
    """

    def __init__(self) -> None:
        self.cursor = PulsarCursor(time.monotonic())
        self.ledgers: dict[int, int] = {}
        self.written: frozenset[int] = frozenset()
        self.delivers = asyncio.Event()
        self.delivers.set()


class PulsarConsumer(LogConsumer):
    """One consumer of it."""

    def __init__(self, subscription: PulsarSubscription, *arguments: Any, **options: Any) -> None:
        """arguments, options: of `LogConsumer`."""
        super().__init__(*arguments, **options)
        self._subscription = subscription

    def take(self) -> TakenEntry | None:
        if not self._subscription.delivers.is_set():
            return None
        taken = super().take()
        if taken is not None:
            ledger_id = taken.raw.entry.position.ledger_id
            self._subscription.ledgers.update(dict.fromkeys(_numbers(taken.ranges), ledger_id))
        return taken

    async def arrival(self) -> None:
        await self._subscription.delivers.wait()
        await super().arrival()

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch, then: Settled) -> None:
        """What is not written now is answered like the rest."""
        own = self._subscription
        written = own.cursor.acknowledged({each: own.ledgers[each] for each in _numbers(ranges)}, time.monotonic())
        if own.cursor.paused:
            own.delivers.clear()
        else:
            own.delivers.set()
        if written is None or written <= own.written:
            asyncio.get_running_loop().call_soon(then, None, True)
            return
        super().ack([IndexRange(each, each) for each in sorted(written - own.written)], seek_epoch, then)
        own.written = written


def _numbers(ranges: Sequence[IndexRange]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]
