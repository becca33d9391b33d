"""Leases of producer ids for HTTP callers, by the owners of their topics."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, TopicLoading
from oncelog.core.ids import INSTANCE_ID_BYTES, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.topics.topic_calls import MOVING_MAX_MS, TopicCalls
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.lease_codec import LeaseCalls, LeaseResult, WantedLease, unanswered
from oncelog.rpc.codecs.owner_codec import LEASE_PRODUCER_ID
from oncelog.rpc.status import may_have_been_done
from oncelog.wire.owner_pb2 import LeaseProducerIdAnswer, LeaseProducerIdRequest

#: Longer than an owner takes to say that a lease is not granted yet.
LEASE_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class LeaseOrder:
    """What a caller wants. producer_id 0: a new one. generation 0: the next one. expire_ms 0: the default, or as
    before."""

    topic: TopicName
    producer_id: int = 0
    generation: int = 0
    expire_ms: int = 0


def request_id_of(request_id: str, position: int, order: LeaseOrder, role: str) -> bytes:
    """The request id at the owner of one order among those of a request: the same whenever the request is repeated.
    position: in the request."""
    parts = (role, request_id, str(position), str(order.topic), str(order.producer_id))
    return hashlib.sha256("\n".join(parts).encode()).digest()[:INSTANCE_ID_BYTES]


class ProducerLeases:
    """Used by the REST interface, which checks rights; the owner checks them again."""

    def __init__(self, topics: TopicCalls, calls: OwnerCalls) -> None:
        self._topics = topics
        self._calls = calls

    async def lease(
        self, topic: TopicName, orders: Sequence[LeaseOrder], caller: Caller, request_ids: Sequence[bytes]
    ) -> list[LeaseResult]:
        """Leases of one topic, in one call of its owner. Durable when it returns. A missing topic is created where the
        policies allow it. At most LEASES_MAX orders, all of this topic.

        Each has an error of its own, as from the owner: InvalidArgument, PermissionDenied, ProducerFenced,
        ProducerExpired; DeadlineExceeded if the outcome is unknown. Raises TopicNotFound, and retriable errors, after
        which nothing was done.
        """
        leases = LeaseCalls(
            [
                WantedLease(order.producer_id, order.generation, order.expire_ms, request_id)
                for order, request_id in zip(orders, request_ids, strict=True)
            ]
        )
        unknown = False

        async def ask(owner: LiveOwner, topic_id: TopicId) -> None:
            async def call(request: LeaseProducerIdRequest) -> LeaseProducerIdAnswer:
                return await self._calls.ask(owner, LEASE_PRODUCER_ID, request, timeout_ms=LEASE_TIMEOUT_MS)

            nonlocal unknown
            try:
                again = await leases.ask(call, topic, topic_id, on_behalf_of=caller)
            except OncelogError as error:
                if not may_have_been_done(error):
                    raise
                again = error
            if again is not None:
                unknown = True
                raise TopicLoading(again.message) from again

        try:
            await self._topics.of_owner(topic, ask, create=True)
        except OncelogError as error:
            if not unknown:
                raise
            advice = "send the same request again, with the same request_id"
            return leases.results(unanswered(topic, MOVING_MAX_MS, advice, error))
        return leases.results()
