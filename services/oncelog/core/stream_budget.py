"""The memory for what waits until clients read it: one budget for all consume and read streams of an owner (hazard
unread-windows).

    budget = StreamBudget(128 << 20, room_returned=…)
    outbox = budget.open("role billing", woken=…)      # one for each stream

    ask --there is room--> take --> the bytes wait until the client has read them --> give_back
        --there is none--> the stream waits --> woken, and asks again

Rules
- A stream is asked before each entry that is handed to it, and before entries are read for it.
- A caller has room while its streams hold less than what is free: the part of one caller is a half, and the next one
  still finds a half of the rest (dynamic thresholds of shared buffers, Choudhury and Hahne 1998).
- A stream that holds nothing has room while its caller has any. So an entry of any size goes, and what is held exceeds
  the budget by one entry at most.
- A stream that holds something has room while it holds less than the budget would have left if its caller held twice as
  much, and less than STREAM_BYTES_MAX. So streams that nobody reads use up two thirds of their caller's part, and the
  last third is for streams that hold nothing.
- A stream that holds something waits until its own client reads. One that holds nothing waits in line: callers take
  turns, and so do the streams of each. Nothing else may make it wait for ever.
- `wake` calls those that wait. It is not called inside `give_back`, so that a step of one topic never begins a step of
  another one.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from oncelog.core.errors import InvariantViolated, TooManyRequests

#: What one stream holds at most; far more than what a client reads before its stream is served again.
STREAM_BYTES_MAX = 16 * 1024 * 1024
#: What an entry takes in memory besides its bytes, and what another report takes. Measured with empty messages.
ENTRY_BYTES = 1024


class Outbox(Protocol):
    """What a consumer's stream holds for its client, as delivery sees it."""

    def ask(self, waiter: Hashable) -> bool:
        """Whether another entry may be taken. False: `waiter` is woken when it may be worth to ask again."""

    def take(self, size: int) -> None:
        """So many bytes wait for the client."""

    def give_back(self, size: int) -> None:
        """So many bytes do not wait any more."""

    def keep(self, size: int) -> int:
        """Entries of so many bytes more (or less) are kept for later delivery. Returns how many bytes more may be kept
        of all subscriptions together; below 0: too many are."""


class _NoLimit:
    """An Outbox that always has room."""

    def ask(self, waiter: Hashable) -> bool:
        return True

    def take(self, size: int) -> None:
        pass

    def give_back(self, size: int) -> None:
        pass

    def keep(self, size: int) -> int:
        return 1 << 62


NO_LIMIT: Outbox = _NoLimit()


class _Caller:
    """The streams of one caller. line: those that wait and hold nothing."""

    __slots__ = ("bytes", "line", "name", "streams")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.streams = 0
        self.line: dict[StreamOutbox, None] = {}


class StreamBudget:
    """bytes_max: of all streams together. caller_streams_max: streams of one caller."""

    def __init__(
        self, bytes_max: int, *, caller_streams_max: int, room_returned: Callable[[], None] = lambda: None
    ) -> None:
        """room_returned: called when bytes were given back while streams wait: call `wake` soon."""
        self.bytes_max = bytes_max
        self.caller_streams_max = caller_streams_max
        self.room_returned = room_returned
        self.bytes = 0
        #: bytes of entries that were read and wait for the credit of a consumer, and their limit
        self.kept_bytes = 0
        self.kept_bytes_max = bytes_max // 4
        self._callers: dict[str, _Caller] = {}
        #: the callers whose streams wait in line, the next in turn first
        self._line: dict[_Caller, None] = {}
        #: streams that wait, hold something, and have given something back
        self._returned: dict[StreamOutbox, None] = {}

    @property
    def free(self) -> int:
        return self.bytes_max - self.bytes

    @property
    def stream_count(self) -> int:
        return sum(caller.streams for caller in self._callers.values())

    @property
    def waiting_count(self) -> int:
        """Streams that hold nothing and wait for room."""
        return sum(len(caller.line) for caller in self._line)

    def open(self, caller: str, *, woken: Callable[[Hashable], None]) -> "StreamOutbox":
        """A new stream. woken: called for each waiter when there may be room. Raises TooManyRequests."""
        known = self._callers.get(caller)
        if known is None:
            known = self._callers[caller] = _Caller(caller)
        elif known.streams >= self.caller_streams_max:
            raise TooManyRequests(
                f"{caller} has {known.streams} streams of consumers and readers at this owner, the maximum: close some",
                field="streams",
                limit=self.caller_streams_max,
            )
        known.streams += 1
        return StreamOutbox(self, known, woken)

    def wake(self) -> None:
        """Call those that wait, as far as there is room: first the streams that hold nothing, in turns."""
        returned, self._returned = self._returned, {}
        for outbox in returned:
            outbox.wait_in_line()
        while any(self._wake_first(caller) for caller in list(self._line)):
            pass
        for outbox in returned:
            if outbox.bytes:
                outbox.wake()

    def _wake_first(self, caller: _Caller) -> bool:
        """Wake the first stream in the caller's line; returns whether there was room."""
        outbox = next(iter(caller.line), None)
        if outbox is None or not outbox.has_room:
            return False
        self.leave_line(outbox)
        outbox.wake()
        if caller.line:
            self._line.pop(caller, None)
            self._line[caller] = None  # the other callers are next
        return True

    # --- of the outboxes ----------------------------------------------------------------------------------------------

    def join_line(self, outbox: "StreamOutbox") -> None:
        outbox.caller.line.setdefault(outbox)
        self._line.setdefault(outbox.caller)

    def leave_line(self, outbox: "StreamOutbox") -> None:
        line = outbox.caller.line
        line.pop(outbox, None)
        if not line:
            self._line.pop(outbox.caller, None)

    def changed(self, outbox: "StreamOutbox", size: int) -> None:
        """An outbox holds so many bytes more, or less."""
        self.bytes += size
        outbox.caller.bytes += size
        if size < 0 and (self._line or outbox.waits):
            if outbox.waits:
                self._returned.setdefault(outbox)
            self.room_returned()

    def closed(self, outbox: "StreamOutbox") -> None:
        self.leave_line(outbox)
        self._returned.pop(outbox, None)
        outbox.caller.streams -= 1
        if not outbox.caller.streams:
            del self._callers[outbox.caller.name]

    def check_invariants(self) -> None:
        if self.bytes != sum(caller.bytes for caller in self._callers.values()) or min(self.bytes, self.kept_bytes) < 0:
            raise InvariantViolated(f"streams hold {self.bytes} bytes, which is not what their callers hold")
        for caller in self._callers.values():
            if bool(caller.line) != (caller in self._line) or any(each.bytes for each in caller.line):
                raise InvariantViolated(f"the line of {caller.name} has other streams than those that hold nothing")


class StreamOutbox:
    """What one stream holds. bytes: handed to it, and not read by its client."""

    __slots__ = ("_budget", "_open", "_waiting", "_woken", "bytes", "caller")

    def __init__(self, budget: StreamBudget, caller: _Caller, woken: Callable[[Hashable], None]) -> None:
        self._budget = budget
        self.caller = caller
        self._woken = woken
        self.bytes = 0
        self._open = True
        #: who is to be woken, in this order
        self._waiting: dict[Hashable, None] = {}

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    @property
    def has_room(self) -> bool:
        free, held = self._budget.free, self.caller.bytes
        return held < free and (not self.bytes or self.bytes < min(STREAM_BYTES_MAX, free - 2 * held))

    @property
    def free(self) -> int:
        """What this stream's caller may still take."""
        return max(0, self._budget.free - self.caller.bytes)

    def ask(self, waiter: Hashable) -> bool:
        """See Outbox. A waiter is listed once."""
        if not self._open:
            return False
        if self.has_room:
            return True
        self._waiting.setdefault(waiter)
        self.wait_in_line()
        return False

    def take(self, size: int) -> None:
        """Also what no room is asked for, such as answers: they are bounded by what the client has asked."""
        if self._open:
            self.bytes += size
            self._budget.changed(self, size)
            self._budget.leave_line(self)

    def give_back(self, size: int) -> None:
        if self._open:
            self.bytes -= size
            if self.bytes < 0:
                raise InvariantViolated(f"a stream has given back {-self.bytes} bytes more than it took")
            self._budget.changed(self, -size)

    def keep(self, size: int) -> int:
        """See Outbox."""
        self._budget.kept_bytes += size
        return self._budget.kept_bytes_max - self._budget.kept_bytes

    def wait_in_line(self) -> None:
        """Join the line, if this stream waits and holds nothing."""
        if self._waiting and not self.bytes:
            self._budget.join_line(self)

    def wake(self) -> None:
        """Call those that wait, one after the other, while there is room."""
        for _ in range(len(self._waiting)):
            if not self.has_room:
                break
            waiter = next(iter(self._waiting), None)
            if waiter is None:
                break  # the call before this one has closed the stream
            del self._waiting[waiter]
            self._woken(waiter)
        self.wait_in_line()

    def close(self) -> None:
        """The stream is over: what it held is gone."""
        if self._open:
            self._waiting.clear()
            if self.bytes:
                self.give_back(self.bytes)
            self._open = False
            self._budget.closed(self)
