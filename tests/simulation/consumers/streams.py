"""The streams of consumers at one owner process, and what waits on them within a budget until clients read it (hazard
unread-windows)."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, cast

from oncelog.core.delivery.events import DeliverMessages, RoomReturned
from oncelog.core.delivery.look_ahead import READ_BYTES
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.ids import ConsumerNumber, OwnerEpoch
from oncelog.core.sdk.consumer.events import OwnerReport
from oncelog.core.stream_budget import StreamBudget, StreamOutbox
from oncelog.verify.violation import Violation
from tests.simulation.network import Stream

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import OwnerServer

#: Above what an entry of a run takes.
COST_MAX = 2_000
#: how long a client takes to read one report, and one that is slow
READ_TICKS = (1, 30)
SLOW_TICKS = (200, 1_500)
SLOW = 0.05


class ConsumerStream:
    """One attempt of a consumer at this owner. `reported` runs at the client."""

    def __init__(self, stream: Stream, reported: Callable[[OwnerEpoch, OwnerReport, int], None], caller: str) -> None:
        self.stream = stream
        self.caller = caller
        self.reported = reported
        self.call = 0
        self.keyed = False
        #: this owner knows that it is broken
        self.over = False
        self.consumers: list[ConsumerNumber] = []


class OwnerStreams:
    """The budget of one life of an owner process, and the reports that wait on each stream."""

    def __init__(self, owner: "OwnerServer", bytes_max: int) -> None:
        self._owner = owner
        self.budget = StreamBudget(bytes_max, caller_streams_max=1_000, room_returned=self._wake_soon)
        #: {stream: (what it holds, what waits: (bytes, how to send it))}; the first one is being read
        self._streams: dict[ConsumerStream, tuple[StreamOutbox, deque[tuple[int, Callable[[], None]]]]] = {}

    def _wake_soon(self) -> None:
        self._owner.post(1, "room returned", self.budget.wake)

    def outbox(self, stream: ConsumerStream) -> StreamOutbox:
        """Of a new stream, or a known one."""
        known = self._streams.get(stream)
        if known is None:
            outbox = self.budget.open(stream.caller, woken=self._woken)
            known = self._streams[stream] = outbox, deque()
        return known[0]

    def _woken(self, consumer: Hashable) -> None:
        for shell in list(self._owner.topics.values()):
            if shell.core.serving is not None:
                self._owner.world.count("room returned")
                shell.handle(RoomReturned(cast("ConsumerNumber", consumer)))

    def report(self, stream: ConsumerStream, report: object, send: Callable[[], None]) -> None:
        """Send it when the client has read what is before it."""
        size = report.cost_bytes if isinstance(report, DeliverMessages) else 0
        known = self._streams.get(stream)
        if known is None:
            return  # the stream has ended
        known[1].append((size, send))
        if len(known[1]) == 1:
            self._read_later(stream)

    def _read_later(self, stream: ConsumerStream) -> None:
        rng = self._owner.world.rng
        slow = not self._owner.parts.healed and rng.random() < SLOW
        self._owner.post(rng.randint(*(SLOW_TICKS if slow else READ_TICKS)), "is read", lambda: self._read(stream))

    def _read(self, stream: ConsumerStream) -> None:
        known = self._streams.get(stream)
        if known is None:
            return
        outbox, waiting = known
        size, send = waiting.popleft()
        send()
        if size:
            outbox.give_back(size)
        if waiting:
            self._read_later(stream)
        self.check()

    def close(self, stream: ConsumerStream) -> None:
        """The stream has ended."""
        known = self._streams.pop(stream, None)
        if known is not None:
            known[0].close()

    def check(self) -> None:
        """What waits is within the budget, which counts what waits and what is being read, and nothing else."""
        budget = self.budget
        budget.check_invariants()
        held = sum(size for _, waiting in self._streams.values() for size, _ in waiting)
        held += sum(shell.consumers.withheld.bytes for shell in self._owner.topics.values())
        if budget.waiting_count:
            self._owner.world.count("stream waits for room")
        if held > budget.bytes_max + COST_MAX:
            raise Violation("budget", f"{held} bytes wait on streams, and {budget.bytes_max} are allowed")
        reads = sum(each._look_ahead.reading is not None for topic in self._served() for each in topic)
        if not held <= budget.bytes <= held + reads * READ_BYTES:
            raise Violation("budget", f"{held} bytes wait on streams, {reads} reads: {budget.bytes} are counted")

    def _served(self) -> list[Subscriptions]:
        shells = self._owner.topics.values()
        return [shell.core.serving.subscriptions for shell in shells if shell.core.serving is not None]
