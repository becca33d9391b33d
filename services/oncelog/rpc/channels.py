"""Channels for callers that open one for each stream and close it with the stream.

    channels = Channels(credentials)
    async with channels.channel("127.0.0.1:6651") as channel: ...

A channel that is closed while it still connects is kept for the next caller with the same address. Otherwise each
caller would restart the attempt, and an overloaded peer, whose handshake takes longer than a call waits, would never be
reached. A channel whose connection was never used is kept, too.
"""

import asyncio

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

    def __init__(self, credentials: Credentials = PLAIN) -> None:
        self._credentials = credentials
        self._kept: dict[_Key, _KeptChannel] = {}
        #: {address: how long connections to it took}, the most recently used last
        self._times: dict[str, AnswerTimes] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.closed = False

    def channel(self, address: str, *, metadata: Metadata = (), origin: str = "") -> Channel:
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
            self._end(former)
        self._kept[key] = channel

    def expire(self, key: _Key, channel: "_KeptChannel") -> None:
        """Close a kept channel that was not needed in time."""
        if self._kept.get(key) is channel:
            del self._kept[key]
            self._end(channel)

    def _end(self, channel: "_KeptChannel") -> None:
        task = asyncio.get_running_loop().create_task(channel.end())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the kept channels. Those in use are closed by their callers."""
        self.closed = True
        while self._kept:
            self._end(self._kept.popitem()[1])
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
    ) -> None:
        super().__init__(address, credentials=credentials, metadata=metadata, origin=origin, times=times)
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
