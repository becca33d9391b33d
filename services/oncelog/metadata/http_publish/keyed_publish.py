"""The ports of `core.http_publish.idempotency`: Redis and the log, one request at a time.

A request continues after its client has disconnected or its timeout has passed: what it began is recorded, so that a
repeat finds the record.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.http_publish.idempotency import publish_once
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.http_publish.keyed_producers import LEASE_MS, KeyedProducers, KeyedTarget, OpenKeyedProducer
from oncelog.metadata.http_publish.named_producers import send
from oncelog.metadata.http_publish.publish_body import Messages
from oncelog.metadata_store.keys.idempotency_keys import KeyStore
from oncelog.metadata_store.records.policy_store import PolicyStore


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """Where the messages are stored: the topic or partition, and its id. message_id: of the first message, "" if
    unknown; the others follow in its entry."""

    topic: TopicName
    topic_id: TopicId
    claim: Claim
    message_id: str
    replayed: bool


class KeyedPublishes:
    """What the requests of this process share. settled: called for each claim of another process settled here."""

    def __init__(
        self,
        keys: KeyStore,
        producers: KeyedProducers,
        policies: PolicyStore,
        *,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self.keys = keys
        self.producers = producers
        self.policies = policies
        self.settled = settled

    async def publish(self, topic: TopicName, key: str, messages: Messages, role: str) -> KeyedAnswer:
        """role: of the caller, to whom the key belongs; empty without authentication.

        Raises the errors of `core.http_publish.idempotency`, and those of opening a producer on the topic.
        """
        target = await self.producers.target(topic, key, messages)
        request = _KeyedRequest(self, target, messages)
        stored = self.keys.of(f"{target.scope}:{hashlib.sha256(key.encode()).hexdigest()}", lease_ms=LEASE_MS)
        fingerprint = _fingerprint(messages, role)
        try:
            end = await publish_once(fingerprint, stored, request, request, without_role=messages.fingerprint)
        finally:
            await request.close()
        return KeyedAnswer(target.topic, target.topic_id, end.claim, end.answer, end.replayed)


class _KeyedRequest:
    """The ports of `core.http_publish.idempotency` to the log, for one request."""

    def __init__(self, shared: KeyedPublishes, target: KeyedTarget, messages: Messages) -> None:
        self._shared = shared
        self._topic = (target.topic, target.topic_id)
        self._messages = messages
        #: the producer on which this request has reserved ids, and holds the lock until it publishes
        self._own: OpenKeyedProducer | None = None
        self._publishing = False
        self._fenced: AsyncProducer | None = None

    async def close(self) -> None:
        self._leave()
        if self._fenced is not None:
            await self._fenced.close(flush=False)

    # --- Ids ---

    async def reserve(self) -> Claim:
        self._own, claim = await self._shared.producers.reserve(*self._topic, len(self._messages.values))
        return claim

    async def publish(self, claim: Claim) -> str:
        assert self._own is not None, "a claim is published while the producer's lock is still held"
        if not self._own.usable:
            raise ServiceUnavailable("the keyed producer was retired during the request")
        self._shared.producers.use(self._own, claim)
        self._publishing = True
        # Tasks start in the order of their creation, so the ids reach the producer in order.
        sending = asyncio.ensure_future(send(self._own.producer, _ids(claim), self._messages))
        self._own.lock.release()
        return str((await sending).message_ids[0] or "")

    def release(self) -> None:
        assert self._own is not None, "only reserved ids are released"
        self._shared.producers.release(self._own)
        self._own = None

    def retire(self) -> None:
        assert self._own is not None, "only a producer of this request is retired"
        self._shared.producers.retire(self._own)
        self._leave()

    # --- OtherProducer ---

    async def fence(self, producer_name: str) -> SequenceId:
        if self._fenced is not None:
            await self._fenced.close(flush=False)
        self._fenced = await self._shared.producers.fence(*self._topic, producer_name)
        self._shared.settled()
        return SequenceId(self._fenced.last_sequence_id)

    async def republish(self, claim: Claim) -> str:
        """The log answers the duplicates with their positions. With deduplication off it would store them again."""
        assert self._fenced is not None, "republished only by the instance that fenced the producer"
        policies = await self._shared.policies.effective_of(*self._topic)
        if not policies.deduplication.value:
            return ""
        return str((await send(self._fenced, _ids(claim), self._messages)).message_ids[0] or "")

    def _leave(self) -> None:
        """Reserved ids that were neither published nor released are never used."""
        own, self._own = self._own, None
        if own is not None and self._publishing:
            self._shared.producers.done(own)
        elif own is not None:
            self._shared.producers.retire(own)
            own.lock.release()
        self._publishing = False


def _ids(claim: Claim) -> range:
    return range(claim.first, claim.last + 1)


def _fingerprint(messages: Messages, role: str) -> str:
    """The key belongs to the role that used it first: another one does not get its answer."""
    return hashlib.sha256(f"{role}\n{messages.fingerprint}".encode()).hexdigest() if role else messages.fingerprint
