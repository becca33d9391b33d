"""The names of the producers of one topic or partition: deliveries carry only their numbers.

a delivery with an unknown number -> its messages wait for the name, PATIENCE_S at most; the owner is asked
    answered            -> handed out with their names
    no answer in time   -> handed out without; the owner is asked on, and later messages have the name
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from oncelog.client.network.backoff import session_backoff
from oncelog.client.network.network import Network
from oncelog.core.errors import InvalidBatch, OncelogError
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import Buffer, peek_batch
from oncelog.core.formats.entry import body_of
from oncelog.core.ids import NOT_DEDUPLICATED, ProducerId
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.owner_codec import PRODUCER_NAMES
from oncelog.wire.owner_pb2 import ProducerNamesRequest

logger = logging.getLogger(__name__)

#: How long messages wait for the names of their producers.
PATIENCE_S = 10.0
#: Ids of one request; an owner takes more.
_IDS_MAX = 16_384


class ProducerNames:
    """Asks the owner for names as their producers appear."""

    def __init__(
        self, topic: TopicName, network: Network, learned: Callable[[], None], *, patience_s: float = PATIENCE_S
    ) -> None:
        """learned: called when no message waits for a name any more."""
        self._topic = topic
        self._network = network
        self._learned = learned
        self._patience_s = patience_s
        #: None: the owner does not know the name
        self._names: dict[ProducerId, str | None] = {NOT_DEDUPLICATED: None}
        #: asked for; of these, the ones that messages wait for
        self._unknown: set[ProducerId] = set()
        self._awaited: set[ProducerId] = set()
        self._asking = False
        self._failure: OncelogError | None = None

    @property
    def missing(self) -> bool:
        """Whether messages wait for a name."""
        return bool(self._awaited)

    def name(self, producer_id: int) -> str | None:
        return self._names.get(ProducerId(producer_id))

    def want(self, entries: Iterable[Buffer]) -> None:
        """Ask for the names of the producers of these entries, unless they are known."""
        new: set[ProducerId] = set()
        for data in entries:
            try:
                producer_id = ProducerId(peek_batch(body_of(data)).producer_id)
            except (InvalidBatch, UnknownFormat):
                continue  # whoever decodes the entry reports it
            if producer_id not in self._names and producer_id not in self._unknown:
                new.add(producer_id)
        if new:
            self._unknown |= new
            self._awaited |= new
            asyncio.get_running_loop().call_later(self._patience_s, self._wait_no_longer, frozenset(new))
        if self._unknown and not self._asking:
            self._asking = True
            self._network.background.start(self._learn(), what=f"names of the producers of {self._topic}")

    def end(self) -> None:
        """The consumer is over: ask no more."""
        self._unknown.clear()
        self._awaited.clear()

    def _wait_no_longer(self, ids: frozenset[ProducerId]) -> None:
        """Messages without a name are better than no messages."""
        late = self._awaited & ids
        if late:
            logger.warning(
                "%s: no topic owner has answered within %g s for the names of %d producers: their messages are handed "
                "out without producer_name until it does (%s)",
                self._topic, self._patience_s, len(late), self._failure or "no answer yet",
            )  # fmt: skip
            self._stop_waiting(late)

    def _stop_waiting(self, ids: Iterable[ProducerId]) -> None:
        waited = self.missing
        self._awaited.difference_update(ids)
        if waited and not self.missing:
            self._learned()

    async def _learn(self) -> None:
        backoff, again = session_backoff(), False
        try:
            while self._unknown:
                ids = sorted(self._unknown, key=lambda number: (number not in self._awaited, number))[:_IDS_MAX]
                try:
                    found = await self._ask(ids, again=again)
                except OncelogError as error:
                    self._failure, again = error, True
                    if not error.retriable:
                        return  # the next delivery asks again
                    await backoff.pause()
                    continue
                self._failure, again = None, False
                self._names |= {producer_id: found.get(producer_id) for producer_id in ids}
                self._unknown.difference_update(ids)
                self._stop_waiting(ids)
        finally:
            self._asking = False

    async def _ask(self, ids: list[ProducerId], *, again: bool) -> dict[ProducerId, str]:
        route = await self._network.route(self._topic, fresh=again, create=False)
        seen = self._network.epochs.highest(route.topic_id)
        request = ProducerNamesRequest(
            topic=str(self._topic), topic_id=route.topic_id, producer_ids=ids, owner_epoch_seen=seen
        )
        answer = await self._network.ask_owner(route, PRODUCER_NAMES, request)
        return {ProducerId(each.producer_id): each.name for each in answer.names}
