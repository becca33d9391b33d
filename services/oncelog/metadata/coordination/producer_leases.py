"""Leases of producer ids for HTTP callers, by the owners of their topics."""

import hashlib
from dataclasses import dataclass

from oncelog.core.access import Caller
from oncelog.core.errors import DeadlineExceeded, OncelogError
from oncelog.core.ids import INSTANCE_ID_BYTES, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.coordination.owner_calls import OwnerCalls
from oncelog.metadata.coordination.topic_calls import TopicCalls
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.owner_codec import LEASE_PRODUCER_ID, caller_to_wire
from oncelog.rpc.status import may_have_been_done
from oncelog.wire.owner_pb2 import LeaseProducerIdAnswer, LeaseProducerIdRequest

#: The owner waits for the storage nodes, and after a takeover until it knows who is connected.
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
    """The request id at the owner of one order among those of a request: the same whenever the request is repeated."""
    parts = (role, request_id, str(position), str(order.topic), str(order.producer_id))
    return hashlib.sha256("\n".join(parts).encode()).digest()[:INSTANCE_ID_BYTES]


class ProducerLeases:
    """Used by the REST interface, which checks rights; the owner checks them again."""

    def __init__(self, topics: TopicCalls, calls: OwnerCalls) -> None:
        self._topics = topics
        self._calls = calls

    async def lease(self, order: LeaseOrder, caller: Caller, request_id: bytes) -> LeaseProducerIdAnswer:
        """Durable when it returns. A missing topic is created where the policies allow it.

        Raises as the owner: InvalidArgument, PermissionDenied, ProducerFenced, ProducerExpired; TopicNotFound;
        retriable errors, after which nothing was done; DeadlineExceeded if the outcome is unknown.
        """

        async def ask(owner: LiveOwner, topic_id: TopicId) -> LeaseProducerIdAnswer:
            request = LeaseProducerIdRequest(
                topic=str(order.topic), topic_id=topic_id, producer_id=order.producer_id, generation=order.generation,
                expire_ms=order.expire_ms, request_id=request_id, on_behalf_of=caller_to_wire(caller),
            )  # fmt: skip
            try:
                return await self._calls.ask(owner, LEASE_PRODUCER_ID, request, timeout_ms=LEASE_TIMEOUT_MS)
            except OncelogError as error:
                if not may_have_been_done(error):
                    raise
                message = f"it is unknown whether {order.topic} has the lease: {error.message}"
                advice = "send the same request again, with the same request_id"
                raise DeadlineExceeded(f"{message}; {advice}", **error.details) from error

        return await self._topics.of_owner(order.topic, ask, create=True)
