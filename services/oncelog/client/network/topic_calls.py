"""One question about many topics: one call of each owner that has some of them, and again until all are answered.

Each topic has a result of its own. One that an owner refuses in a way that may pass is looked up and asked for again,
while the others are done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from oncelog.client.network.backoff import session_backoff
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.core.errors import DeadlineExceeded, OncelogError
from oncelog.core.ids import OwnerEpoch
from oncelog.core.names import TopicName


class AskedTopic(NamedTuple):
    """owner_epoch_seen: the highest one that this client has seen of it."""

    name: TopicName
    topic_id: str
    owner_epoch_seen: OwnerEpoch


ResultT = TypeVar("ResultT")
#: One call of the owner at this route: of each topic, in their order, its epoch and its result.
Ask = Callable[[Route, Sequence[AskedTopic]], Awaitable[Iterable[tuple[int, ResultT | OncelogError]]]]


async def ask_owners(
    network: Network,
    topics: Iterable[TopicName],
    ask: Ask[ResultT],
    *,
    timeout_ms: int,
    topics_max: int,
    may_create: Callable[[TopicName], bool] = lambda _: False,
    final: tuple[type[OncelogError], ...] = (),
) -> dict[TopicName, ResultT | OncelogError]:
    """The result of each topic: its last one, if that is an error that may pass; DeadlineExceeded for one that has not
    been answered at all. topics_max: of one call. may_create: whether a missing topic is created. final: errors that
    are not to be waited for although they may pass."""
    calls = _TopicCalls(network, topics, ask, topics_max, may_create, final)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await calls.run()
    except TimeoutError:
        pass
    return calls.results(timeout_ms)


class _TopicCalls(Generic[ResultT]):
    def __init__(
        self,
        network: Network,
        topics: Iterable[TopicName],
        ask: Ask[ResultT],
        topics_max: int,
        may_create: Callable[[TopicName], bool],
        final: tuple[type[OncelogError], ...],
    ) -> None:
        self._network = network
        self._ask = ask
        self._topics_max = topics_max
        self._may_create = may_create
        self._final = final
        #: {topic: why it has no result yet; None: nothing has answered}
        self._waiting: dict[TopicName, OncelogError | None] = dict.fromkeys(topics)
        self._order = list(self._waiting)
        self._results: dict[TopicName, ResultT | OncelogError] = {}

    async def run(self) -> None:
        backoff = session_backoff()
        while True:
            await self._attempt()
            if not self._waiting:
                return
            await backoff.pause()

    async def _attempt(self) -> None:
        topics = list(self._waiting)
        routes = await asyncio.gather(*map(self._route, topics))
        of_owner: dict[tuple[str, str], list[tuple[TopicName, Route]]] = {}
        for topic, route in zip(topics, routes, strict=True):
            if route is not None:
                of_owner.setdefault((route.address, route.owner), []).append((topic, route))
        calls = [
            self._call(found[first : first + self._topics_max])
            for found in of_owner.values()
            for first in range(0, len(found), self._topics_max)
        ]
        await asyncio.gather(*calls)

    async def _route(self, topic: TopicName) -> Route | None:
        again = self._waiting[topic] is not None
        try:
            return await self._network.route(topic, fresh=again, create=self._may_create(topic))
        except OncelogError as error:
            self._failed(topic, error)
            return None

    async def _call(self, asked: Sequence[tuple[TopicName, Route]]) -> None:
        epochs = self._network.epochs
        topics = [AskedTopic(name, route.topic_id, epochs.highest(route.topic_id)) for name, route in asked]
        try:
            results = list(await self._ask(asked[0][1], topics))
        except OncelogError as error:
            for name, _ in asked:
                self._failed(name, error)
            return
        for (name, route), (owner_epoch, result) in zip(asked, results, strict=True):
            try:
                if isinstance(result, OncelogError):
                    raise result
                epochs.believe(route.topic_id, OwnerEpoch(owner_epoch))
            except OncelogError as error:
                self._failed(name, error)
            else:
                self._results[name] = result
                del self._waiting[name]

    def _failed(self, topic: TopicName, error: OncelogError) -> None:
        if error.retriable and not isinstance(error, self._final):
            self._waiting[topic] = error
        else:
            self._results[topic] = error
            del self._waiting[topic]

    def results(self, timeout_ms: int) -> dict[TopicName, ResultT | OncelogError]:
        for topic, error in self._waiting.items():
            late = DeadlineExceeded(f"topic {topic} has not answered within {timeout_ms} ms")
            self._results[topic] = error or late
        return {topic: self._results[topic] for topic in self._order}
