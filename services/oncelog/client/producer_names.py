"""The names of the producers of one topic or partition: deliveries carry only their numbers."""

import logging
from collections.abc import Callable, Iterable

from oncelog.client.backoff import persist
from oncelog.client.network import Network
from oncelog.core.errors import InvalidBatch, OncelogError
from oncelog.core.formats.batch import Buffer, peek_batch
from oncelog.core.formats.entry import body_of
from oncelog.core.ids import NOT_DEDUPLICATED, OwnerEpoch, ProducerId
from oncelog.core.names import TopicName
from oncelog.rpc.owner_codec import PRODUCER_NAMES
from oncelog.wire.owner_pb2 import ProducerNamesRequest

logger = logging.getLogger(__name__)

#: After this long without an answer, messages are handed out without the names.
_TIMEOUT_MS = 10_000
_CALL_TIMEOUT_MS = 5_000
#: Ids of one request; an owner takes more.
_IDS_MAX = 16_384


class ProducerNames:
    """Asks the owner for names as their producers appear; `missing` until it has answered."""

    def __init__(self, topic: TopicName, network: Network, learned: Callable[[], None]) -> None:
        """learned: called when nothing is missing any more."""
        self._topic = topic
        self._network = network
        self._learned = learned
        #: None: the name is not known, and it is not asked for again
        self._names: dict[ProducerId, str | None] = {NOT_DEDUPLICATED: None}
        self._wanted: set[ProducerId] = set()
        self._asking = False

    @property
    def missing(self) -> bool:
        return self._asking

    def name(self, producer_id: int) -> str | None:
        return self._names.get(ProducerId(producer_id))

    def want(self, entries: Iterable[Buffer]) -> None:
        """Ask for the names of the producers of these entries, unless they are known."""
        for data in entries:
            try:
                producer_id = ProducerId(peek_batch(body_of(data)).producer_id)
            except InvalidBatch:
                continue  # whoever decodes the entry reports it
            if producer_id not in self._names:
                self._wanted.add(producer_id)
        if self._wanted and not self._asking:
            self._asking = True
            self._network.background.start(self._learn(), what=f"names of the producers of {self._topic}")

    async def _learn(self) -> None:
        try:
            while self._wanted:
                ids = sorted(self._wanted)[:_IDS_MAX]
                found = await self._found(ids)
                self._names |= {producer_id: found.get(producer_id) for producer_id in ids}
                self._wanted.difference_update(ids)
        finally:
            self._asking = False
        self._learned()

    async def _found(self, ids: list[ProducerId]) -> dict[ProducerId, str]:
        """Empty if no owner answers: messages without a name are better than no messages."""
        try:
            return await persist(
                lambda again: self._ask(ids, again=again), timeout_ms=_TIMEOUT_MS, what="the names of producers"
            )
        except OncelogError as error:
            logger.warning("%s: messages are handed out without producer_name: %s", self._topic, error)
            return {}

    async def _ask(self, ids: list[ProducerId], *, again: bool) -> dict[ProducerId, str]:
        network = self._network
        route = await network.route(self._topic, fresh=again, create=False)
        seen = network.epochs.highest(route.topic_id)
        request = ProducerNamesRequest(
            topic=str(self._topic), topic_id=route.topic_id, producer_ids=ids, owner_epoch_seen=seen
        )
        async with network.channel(route) as channel:
            answer = await channel.call(PRODUCER_NAMES, request, timeout_ms=_CALL_TIMEOUT_MS)
        network.epochs.believe(route.topic_id, OwnerEpoch(answer.owner_epoch))
        return {ProducerId(each.producer_id): each.name for each in answer.names}
