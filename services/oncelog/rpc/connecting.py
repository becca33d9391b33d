"""How a channel gets its connection: how long an attempt may take, and how long a call waits for one.

Rules
- A call waits for a connection for at most `PATIENCE_MS`, and is told then that there is none. Whoever called may look
  for somebody else, or ask again: a topic may have gone to another owner meanwhile.
- The attempt goes on when a call has given up. An attempt that is stuck is ended after its allowance, and the next one
  is allowed twice as long, from `CONNECT_MS_MIN` to `CONNECT_MS_MAX`: so a starved machine or a slow handshake connects
  in the end, and what was sent to a host that was away for a moment is not waited for long.
- A refused attempt, or a name that is not known, says that nothing is slow: the allowance stays. A connection that
  stands makes it the smallest again.
"""

import asyncio
from collections.abc import Callable

import grpc

#: A connection takes milliseconds where nothing is starved.
CONNECT_MS_MIN = 800
CONNECT_MS_MAX = 10_000
PATIENCE_MS = 800
#: gRPC's own bound of an attempt comes after ours, so that a channel in failure was refused and is not stuck.
_MARGIN = 2

NewChannel = Callable[[int], grpc.aio.Channel]
_READY = grpc.ChannelConnectivity.READY


class Connecting:
    """The gRPC channel to one address, made anew for each stuck attempt. Used inside one event loop."""

    def __init__(self, new: NewChannel) -> None:
        """new(bound_ms): a channel whose attempts gRPC itself ends after bound_ms."""
        self._new = new
        self.allowance_ms = CONNECT_MS_MIN
        self.channel = new(self.allowance_ms * _MARGIN)
        self.closed = False
        #: whether a call was begun since the attempt began
        self._wanted = False
        self._attempt: asyncio.Task[None] | None = None
        #: what ends the calls that wait for the connection of this very channel
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def ready(self) -> bool:
        """Whether a connection stands."""
        return self.channel.get_state() is _READY

    @property
    def unfinished(self) -> bool:
        """Whether an attempt is under way, or the next one is allowed more time than the first."""
        if self.closed or self.ready or self.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
        return self.allowance_ms > CONNECT_MS_MIN or self.channel.get_state() is grpc.ChannelConnectivity.CONNECTING

    def begin(self) -> None:
        """Connect, if no connection stands."""
        if self.closed or self.ready:
            return
        self._wanted = True
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_task(self._connect())

    def watch(self, give_up: Callable[[], None]) -> None:
        """For a call that has begun: `give_up` is called when it cannot wait for its connection any longer."""
        if self.closed or self.ready:
            return
        self.begin()
        self._waiting[give_up] = None
        asyncio.get_running_loop().call_later(PATIENCE_MS / 1000, self._give_up, give_up)

    def _give_up(self, give_up: Callable[[], None]) -> None:
        if give_up in self._waiting:
            del self._waiting[give_up]
            if not self.ready:
                give_up()

    async def connected(self) -> None:
        """Return once a connection stands, however long that takes."""
        while not self.ready:
            self.begin()
            assert self._attempt is not None, "begin has started one"
            await asyncio.wait({self._attempt})

    async def _connect(self) -> None:
        """Until a connection stands, or nobody has wanted one while an attempt was under way."""
        while self._wanted and not self.closed:
            self._wanted = False
            channel = self.channel
            try:
                async with asyncio.timeout(self.allowance_ms / 1000):
                    await channel.channel_ready()
            except TimeoutError:
                if channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    self.allowance_ms = min(self.allowance_ms * 2, CONNECT_MS_MAX)
                for give_up in list(self._waiting):
                    self._give_up(give_up)  # gRPC itself forgets some of the calls of a channel that is closed
                self.channel = self._new(self.allowance_ms * _MARGIN)
                await channel.close()
            except (grpc.aio.UsageError, grpc.aio.InternalError):
                return  # closed meanwhile
            else:
                self.allowance_ms = CONNECT_MS_MIN
                self._waiting.clear()
                return

    async def close(self) -> None:
        """End the attempt, and all calls and streams."""
        self.closed = True
        self._waiting.clear()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
            await asyncio.wait({attempt})
        await self.channel.close()


def why_not_connected(details: str) -> str | None:
    """What a failure of gRPC's to connect means, in words; None: it is about something else."""
    return next((meaning for words, meaning in _MEANINGS if words in details), None)


_MEANINGS: tuple[tuple[str, str], ...] = (
    ("onnection refused", "the connection was refused: nothing listens there"),
    ("errors resolving", "its name is not found"),
    ("lookup failed", "its name is not found"),
    ("CERTIFICATE_VERIFY_FAILED", "TLS failed: its certificate is not trusted"),
    ("not in peer certificate", "TLS failed: its certificate has another name"),
    ("WRONG_VERSION_NUMBER", "TLS failed: plain text is spoken there"),
    ("Tls handshake failed", "TLS failed"),
    ("No route to host", "there is no route to it"),
    ("etwork is unreachable", "there is no route to it"),
    ("timed out", "the connection timed out"),
    ("handshaker shutdown", "the connection timed out"),
    ("Endpoint closing", "the handshake timed out"),
    ("Failed parsing HTTP/2", "something else than gRPC answers there"),
    ("Handshake read failed", "it closed the connection in the handshake"),
    ("failed to connect", "no connection came about"),
)
