"""What a door for Pulsar's clients needs of the cluster, and of time: the forms of the client of Oncelog behind it."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected, Verdict

#: Called once, on the event loop. None: the producer has ended, and nothing is known of the batch.
Decided = Callable[[Verdict | None], None]


class ProducerPort(Protocol):
    """One open producer: a session with the owner of its topic, which comes back after takeovers by itself."""

    @property
    def name(self) -> str:
        """As given, or assigned."""

    @property
    def token(self) -> int:
        """What the client presents next time, at any door."""

    @property
    def last_sequence_id(self) -> SequenceId:
        """The highest id that is durable, after writes in flight have settled; -1: none."""

    def prepare(self, entry: bytes, ids: Ids, message_count: int) -> Any | Rejected:
        """Check an entry, and make of it what `give` takes. It computes only, and may run in another thread."""

    def has_room(self, size: int) -> bool:
        """Whether a batch of this size may be given now."""

    async def room(self, size: int) -> None:
        """Return when there is room, or the producer has ended."""

    def give(self, prepared: Any, decided: Decided) -> None:
        """Hand a batch to the log. It is sent again until the log has decided about it."""

    def holder_lives(self) -> None:
        """The answer to `wanted`: the client is there."""

    async def ended(self) -> OncelogError:
        """Return what ends this producer, when it does."""

    async def close(self, *, gives_up_name: bool) -> None:
        """End the session now; each open `decided` gets None. gives_up_name: the client has closed its producer, so the
        name is free; else it is kept for a moment for its token."""


class ProvedCaller(NamedTuple):
    """Whose token it is. ends_in_ms: how long the token is still valid; None: for ever."""

    caller: Caller
    ends_in_ms: int | None = None


class ClusterPort(Protocol):
    """The cluster, for all connections of a door."""

    @property
    def authentication(self) -> bool:
        """Whether callers need a token."""

    @property
    def batch_bytes_max(self) -> int:
        """The limit of the log for a batch."""

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        """Raises Unauthenticated for an invalid token, and a Retriable error if it cannot be checked now."""

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        """0: the topic is not partitioned. Raises OncelogError."""

    async def open_producer(
        self,
        topic: TopicName,
        caller: Caller,
        *,
        name: str | None,
        token: int,
        epoch: int | None,
        wanted: Callable[[], None],
    ) -> ProducerPort:
        """Open a producer for the caller. It waits while the topic has no owner; cancelling withdraws the request.

        wanted: called when another client wants the name. Raises OncelogError, as `ProducerOpening.refused` reads it.
        """


class Timers(Protocol):
    """Time, for a shell that decides nothing by it."""

    def now_ms(self) -> int:
        """It never goes back."""

    def at(self, when_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function then. Returns a function that cancels it."""


class LoopTimers:
    """Those of the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def at(self, when_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        # A timer that fires a moment too early would be set again and again.
        return self._loop.call_at((when_ms + 1) / 1000, call).cancel
