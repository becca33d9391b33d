"""The connections of one piece of work, be it planning or reading: nothing of them is left when it is done.

    async with ClusterLinks(connection) as links:
        answer = await links.ask_metadata(LEDGERS, request)
        answer = await links.ask_owner(topic, LAST_MESSAGE, lambda route: LastMessageRequest(...))

What fails and may be tried again is, with a fresh look-up, for `PATIENCE_MS`; then it is a DeadlineExceeded with the
last reason, and Spark tries the task again. Reading creates no topic.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from oncelog.client.backoff import persist
from oncelog.client.epochs import OwnerEpochs
from oncelog.core.errors import OncelogError, ServiceUnavailable, WrongCluster
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.pipeline.options import Connection
from oncelog.rpc.channel import Channel
from oncelog.rpc.metadata_codec import LOOKUP
from oncelog.rpc.methods import UnaryMethod
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest

PATIENCE_MS = 60_000
_CALL_TIMEOUT_MS = 10_000

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
ReceivedRequestT = TypeVar("ReceivedRequestT")
ReceivedAnswerT = TypeVar("ReceivedAnswerT")
ResultT = TypeVar("ResultT")


class OwnerAnswer(Protocol):
    """What every owner's answer says of its owner."""

    @property
    def owner_epoch(self) -> int: ...


OwnerAnswerT = TypeVar("OwnerAnswerT", bound=OwnerAnswer)


class ClusterLinks:
    """One channel for each address, and the owner of each topic until somebody finds it stale."""

    def __init__(self, connection: Connection, *, patience_ms: int = PATIENCE_MS) -> None:
        self.credentials = connection.credentials()
        self.patience_ms = patience_ms
        self._addresses = list(connection.addresses)
        self._channels: dict[str, Channel] = {}
        self._routes: dict[str, LookupAnswer] = {}
        #: an owner from the past answers nothing that is believed
        self._epochs = OwnerEpochs()
        #: of the first answer: addresses of two clusters would mix two logs
        self._cluster_id = ""

    async def ask_metadata(
        self, method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT], request: RequestT
    ) -> ReceivedAnswerT:
        """Of any replica. Raises its fatal error, DeadlineExceeded."""

        async def ask(_again: bool) -> ReceivedAnswerT:
            failure: OncelogError = ServiceUnavailable("no metadata service is known")
            for address in list(self._addresses):
                try:
                    return await self.channel(address).call(method, request, timeout_ms=_CALL_TIMEOUT_MS)
                except OncelogError as error:
                    if not error.retriable:
                        raise
                    failure = error
                    self._addresses.append(self._addresses.pop(0))
            raise failure

        return await persist(ask, timeout_ms=self.patience_ms, what="the metadata services")

    async def look_up(self, topic: str, *, fresh: bool = True) -> LookupAnswer:
        """Where the topic is served, or how many parts it has. Raises TopicNotFound, and as `ask_metadata`."""
        known = self._routes.get(topic)
        if known is not None and not fresh:
            return known
        seen = self._epochs.highest(TopicId(known.topic_id)) if known is not None else 0
        request = LookupRequest(
            topic=topic, create_if_missing=False, cluster_id=self._cluster_id, owner_epoch_seen=seen
        )
        answer = await self.ask_metadata(LOOKUP, request)
        self._cluster_id = self._cluster_id or answer.cluster_id
        if answer.cluster_id != self._cluster_id:
            raise WrongCluster(f"the addresses belong to the clusters {self._cluster_id} and {answer.cluster_id}")
        self._epochs.believe(TopicId(answer.topic_id), OwnerEpoch(answer.owner_epoch))
        self._routes[topic] = answer
        return answer

    async def ask_owner(
        self,
        topic: str,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, OwnerAnswerT],
        request_of: Callable[[LookupAnswer], RequestT],
    ) -> OwnerAnswerT:
        """One call to whoever serves the topic, through takeovers. Raises as `look_up`, or its fatal error.

        request_of: its route's owner_epoch is the highest that was seen; an answer of a lower one is not believed.
        """

        async def ask(again: bool) -> OwnerAnswerT:
            route = await self.look_up(topic, fresh=again)
            channel = self.channel(route.owner_address)
            answer = await channel.call(method, request_of(route), timeout_ms=_CALL_TIMEOUT_MS)
            self._epochs.believe(TopicId(route.topic_id), OwnerEpoch(answer.owner_epoch))
            return answer

        return await persist(ask, timeout_ms=self.patience_ms, what=f"the owner of {topic}")

    def channel(self, address: str) -> Channel:
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = Channel(address, credentials=self.credentials)
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
        # One turn of the loop lets gRPC finish what the cancelled calls left behind.
        await asyncio.sleep(0)


def run_with_links(connection: Connection, work: Callable[[ClusterLinks], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Do `work` with links of its own: no connection outlives the call."""

    async def run() -> ResultT:
        async with ClusterLinks(connection) as links:
            return await work(links)

    return process_loop().run_until_complete(run())


#: {process id: its loop}; a forked child has none yet
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}


def process_loop() -> asyncio.AbstractEventLoop:
    """The one loop of this process for planning and reading; it runs while somebody waits in it, and is never closed:
    gRPC's poller goes on to wake every loop that it has served, and stumbles over closed ones."""
    loop = _LOOPS.get(os.getpid())
    if loop is None:
        loop = _LOOPS[os.getpid()] = asyncio.new_event_loop()
    return loop
