"""The channels of one user of the network: one for each address, for calls, and others for one caller each.

    channels = Channels(credentials)
    answer = await channels.shared("127.0.0.1:6651").call(method, request, timeout_ms=1_000)
    channels.retain(["127.0.0.1:6651"])                         # the processes that are left
    async with channels.channel("127.0.0.1:6651") as channel:   # for a stream, which may end with its connection

A channel that is closed while it still connects is kept for the next caller with the same address. Otherwise each
caller would restart the attempt, and an overloaded peer, whose handshake takes longer than a call waits, would never be
reached. A channel whose connection was never used is kept, too.
"""

import asyncio
from collections.abc import Iterable

from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.answer_times import AnswerTimes
from oncelog.rpc.channel import Channel
from oncelog.rpc.connecting import connect_times
from oncelog.runtime.credentials import PLAIN, Credentials

#: Longer than an attempt, and than the pause between two attempts of a caller.
KEPT_S = 15.0
#: Addresses of which the times of connections are known.
_ADDRESSES_MAX = 1_024
Metadata = tuple[tuple[str, str], ...]
_Key = tuple[str, Metadata]


class Channels:
    """For one event loop."""

    def __init__(self, credentials: Credentials = PLAIN, *, forwards: bool = False) -> None:
        """forwards: `Channel`."""
        self._credentials = credentials
        self._forwards = forwards
        self._shared: dict[str, _KeptChannel] = {}
        self._kept: dict[_Key, _KeptChannel] = {}
        #: {address: how long connections to it took}, the most recently used last
        self._times: dict[str, AnswerTimes] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.closed = False

    def shared(self, address: str, *, key: str = "", metadata: Metadata = (), origin: str = "") -> Channel:
        """The one channel for calls to this address. Raises as Channel does.

        key: of the process there, if another process at the same address is to get a channel of its own. metadata: of
        each call, the same for one key.
        """
        channel = self._shared.get(key or address)
        if channel is None:
            channel = self._shared[key or address] = self.channel(address, metadata=metadata, origin=origin)
        return channel

    def retain(self, keys: Iterable[str]) -> None:
        """Close all other shared channels, with their calls and streams. keys: addresses, if no keys were given."""
        present = set(keys)
        for gone in [key for key in self._shared if key not in present]:
            self._close(self._shared.pop(gone))

    async def drop(self, channel: Channel) -> None:
        """Close a shared channel, unless that was done. Its next caller gets another one."""
        for key in [key for key, known in self._shared.items() if known is channel]:
            await self._shared.pop(key).close()

    def channel(self, address: str, *, metadata: Metadata = (), origin: str = "") -> "_KeptChannel":
        """A channel for one caller, who closes it. Raises as Channel does."""
        if self.closed:
            raise ServiceUnavailable(f"{address}: the connections of this process are closed")
        kept = self._kept.pop((address, metadata), None)
        if kept is not None:
            kept.take()
            return kept
        return _KeptChannel(
            address,
            self,
            credentials=self._credentials,
            metadata=metadata,
            origin=origin,
            times=self._times_of(address),
            forwards=self._forwards,
        )

    def _times_of(self, address: str) -> AnswerTimes:
        """The next connection to a slow peer begins with what the last ones have shown."""
        times = self._times[address] = self._times.pop(address) if address in self._times else connect_times()
        while len(self._times) > _ADDRESSES_MAX:
            del self._times[next(iter(self._times))]
        return times

    def keep(self, key: _Key, channel: "_KeptChannel") -> None:
        """Keep the channel for the next caller, in place of one that is kept already."""
        former = self._kept.get(key)
        if former is not None:
            self._close(former)
        self._kept[key] = channel

    def expire(self, key: _Key, channel: "_KeptChannel") -> None:
        """Close a kept channel that was not needed in time."""
        if self._kept.get(key) is channel:
            del self._kept[key]
            self._close(channel)

    def _close(self, channel: "_KeptChannel") -> None:
        task = asyncio.get_running_loop().create_task(channel.end())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the shared and the kept channels. Those of one caller are closed by that caller."""
        self.closed = True
        self.retain(())
        while self._kept:
            self._close(self._kept.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing)


class _KeptChannel(Channel):
    """Returns to its Channels when it is closed before it was used."""

    def __init__(
        self,
        address: str,
        channels: Channels,
        *,
        credentials: Credentials,
        metadata: Metadata,
        origin: str,
        times: AnswerTimes,
        forwards: bool,
    ) -> None:
        super().__init__(
            address, credentials=credentials, metadata=metadata, origin=origin, times=times, forwards=forwards
        )
        self._channels = channels
        self._key = (address, metadata)
        self._expiry: asyncio.TimerHandle | None = None

    def take(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    async def close(self) -> None:
        if self._channels.closed or not self.worth_keeping:
            await super().close()
            return
        self._channels.keep(self._key, self)
        self._expiry = asyncio.get_running_loop().call_later(KEPT_S, self._channels.expire, self._key, self)

    async def end(self) -> None:
        """Close the channel."""
        self.take()
        await super().close()
