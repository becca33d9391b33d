"""How a channel connects: how long an attempt may take, and how long a call waits for a connection.

Rules
- Limits follow what recent connections to this address took (`rpc.answer_times`): a call waits for a connection for
  `CONNECT_MS_MIN` to `CALL_WAIT_MS_MAX` and then fails, however often attempts were late. The caller may look the topic
  up again, which may have moved to another owner meanwhile, or retry. Both are wasted where a handshake only takes its
  time.
- The attempt continues after a call has given up. An attempt without an answer is ended after its time limit, and the
  next one gets twice as long, from `CONNECT_MS_MIN` to `CONNECT_MS_MAX`. So a busy machine or a slow handshake connects
  in the end, and an attempt to a host that was unreachable for a moment does not last long.
- A refused attempt or an unknown name is no sign of slowness: the time limit stays. A connection resets it to what such
  a connection needs.
"""

import asyncio
from collections.abc import Callable

from oncelog.rpc import library
from oncelog.rpc.answer_times import AnswerTimes
from oncelog.runtime.forks import keep

#: A connection takes milliseconds on machines that are not overloaded.
CONNECT_MS_MIN = 800
CONNECT_MS_MAX = 10_000
#: Below the two seconds after which clients shall have found another owner.
CALL_WAIT_MS_MAX = 2_000
#: gRPC's own time limit is longer than ours, so a channel in TRANSIENT_FAILURE was refused, not slow.
_MARGIN = 2

NewChannel = Callable[[int], library.grpc.aio.Channel]


class Connecting:
    """The gRPC channel to one address, replaced after each attempt without an answer. For one event loop."""

    def __init__(self, new: NewChannel, times: AnswerTimes | None = None) -> None:
        """new(limit_ms): makes a channel whose attempts gRPC itself ends after limit_ms. times: of connections to this
        address, which may be shared with other channels."""
        self._new = new
        self._times = times or connect_times()
        self.channel = new(self.limit_ms * _MARGIN)
        keep(self)
        self.closed = False
        #: whether a call has started since the attempt started
        self._wanted = False
        self._attempt: asyncio.Task[None] | None = None
        #: callbacks that end the calls waiting for this channel's connection
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def limit_ms(self) -> int:
        """Of the next attempt."""
        return self._times.limit_ms

    @property
    def call_wait_ms(self) -> int:
        """How long a call that starts now waits for a connection."""
        return self._times.measured_ms(CALL_WAIT_MS_MAX)

    @property
    def ready(self) -> bool:
        """Whether there is a connection."""
        return self.channel.get_state() is library.grpc.ChannelConnectivity.READY

    @property
    def unfinished(self) -> bool:
        """Whether an attempt is running, or the next one gets more time than the first."""
        if self.closed or self.ready or self.channel.get_state() is library.grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
        return self._times.raised or self.channel.get_state() is library.grpc.ChannelConnectivity.CONNECTING

    def begin(self) -> None:
        """Connect, unless there is a connection."""
        if self.closed or self.ready:
            return
        self._wanted = True
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_task(self._connect())

    def watch(self, give_up: Callable[[], None], wait_ms: int) -> None:
        """For a started call: `give_up` is called when its wait for a connection is over."""
        if self.closed or self.ready:
            return
        self.begin()
        self._waiting[give_up] = None
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._give_up, give_up)

    def _give_up(self, give_up: Callable[[], None]) -> None:
        if give_up in self._waiting:
            del self._waiting[give_up]
            if not self.ready:
                give_up()

    def _end_waiting(self) -> None:
        """End the calls that wait for a connection: gRPC forgets some of those of a channel that is closed."""
        for give_up in list(self._waiting):
            self._give_up(give_up)

    async def connected(self) -> None:
        """Return when there is a connection, however long that takes."""
        while not self.ready:
            self.begin()
            assert self._attempt is not None, "begin starts one"
            await asyncio.wait({self._attempt})

    async def _connect(self) -> None:
        """Attempt to connect until there is a connection, or no call has started during an attempt."""
        clock = asyncio.get_running_loop().time
        while self._wanted and not self.closed:
            self._wanted = False
            channel, began_s, limit_ms = self.channel, clock(), self.limit_ms
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    await channel.channel_ready()
            except TimeoutError:
                if channel.get_state() is not library.grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    self._times.late(limit_ms)
                self._end_waiting()
                if not self.closed:
                    self.channel = self._new(self.limit_ms * _MARGIN)
                await channel.close()
            except (library.grpc.aio.UsageError, library.grpc.aio.InternalError):
                return  # closed meanwhile
            else:
                self._times.answered((clock() - began_s) * 1000)
                self._waiting.clear()
                return

    async def close(self) -> None:
        """End the attempt, all calls and all streams; also when the caller is cancelled meanwhile."""
        self.closed = True
        self._end_waiting()
        attempt, self._attempt = self._attempt, None
        try:
            if attempt is not None:
                attempt.cancel()
                await asyncio.wait({attempt})
        finally:
            await self.channel.close()  # without a pause: nothing cancels it


def connect_times() -> AnswerTimes:
    """For the connections to one address."""
    return AnswerTimes(min_ms=CONNECT_MS_MIN, max_ms=CONNECT_MS_MAX)


def why_not_connected(details: str) -> str | None:
    """The reason for gRPC's failure to connect; None when `details` is about something else."""
    return next((meaning for words, meaning in _MEANINGS if words in details), None)


_MEANINGS: tuple[tuple[str, str], ...] = (
    ("onnection refused", "connection refused: no process listens at this address"),
    ("errors resolving", "its name cannot be resolved"),
    ("lookup failed", "its name cannot be resolved"),
    ("CERTIFICATE_VERIFY_FAILED", "TLS failed: its certificate is not trusted"),
    ("not in peer certificate", "TLS failed: its certificate has another name"),
    ("WRONG_VERSION_NUMBER", "TLS failed: the server does not use TLS"),
    ("Tls handshake failed", "TLS failed"),
    ("No route to host", "no route to host"),
    ("etwork is unreachable", "no route to host"),
    ("timed out", "the connection timed out"),
    ("handshaker shutdown", "the connection timed out"),
    ("Endpoint closing", "the handshake timed out"),
    ("Failed parsing HTTP/2", "the server does not speak gRPC; clients use port 6650, unless set otherwise"),
    ("Handshake read failed", "the server closed the connection during the handshake"),
    ("failed to connect", "the connection failed"),
)
