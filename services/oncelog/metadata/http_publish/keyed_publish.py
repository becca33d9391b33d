"""Performs the effects of `core.http_publish.idempotency` on Redis and the log, one request at a time.

A request continues after its client has disconnected or its timeout has passed: what it began is recorded, so that a
repeat finds the record.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.core.http_publish.idempotency import (
    AnswerWritten,
    CheckHolder,
    ClaimPublished,
    ClaimWritten,
    FenceCompleted,
    FenceProducer,
    HolderChecked,
    IdsReserved,
    KeyedPublish,
    KeyedPublishEffect,
    KeyedPublishEvent,
    KeyedPublishRequested,
    KeyedPublishState,
    KeyRead,
    PublishClaim,
    PublishFailed,
    ReadKey,
    RejectRequest,
    ReleaseClaim,
    RepublishClaim,
    ReserveIds,
    RetireProducer,
    ReturnAnswer,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.http_publish.keyed_producers import KeyedProducers, KeyedTarget, OpenKeyedProducer
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
        return await _KeyedRequest(self, target, key, messages, role).run()


class _KeyedRequest:
    def __init__(self, shared: KeyedPublishes, target: KeyedTarget, key: str, messages: Messages, role: str) -> None:
        self._shared = shared
        self._topic = (target.topic, target.topic_id)
        self._key = f"{target.scope}:{hashlib.sha256(key.encode()).hexdigest()}"
        self._messages = messages
        self._core = KeyedPublish(_fingerprint(messages, role), without_role=messages.fingerprint)
        #: the producer whose lock this request holds
        self._reserved: OpenKeyedProducer | None = None
        #: the producer that is publishing this request's claim
        self._publishing: OpenKeyedProducer | None = None
        self._fenced: AsyncProducer | None = None

    async def run(self) -> KeyedAnswer:
        event: KeyedPublishEvent = KeyedPublishRequested()
        try:
            while True:
                effects, completion = self._core.handle(event), None
                for effect in effects:
                    if isinstance(effect, RejectRequest):
                        raise effect.error
                    if isinstance(effect, ReturnAnswer):
                        assert self._core.found is not None, "an answer has a record"
                        return KeyedAnswer(*self._topic, self._core.found.record.claim, effect.answer, effect.replayed)
                    completion = await self._perform(effect) or completion
                assert completion is not None, f"no completion of {effects}"
                event = completion
        finally:
            self._leave()
            if self._fenced is not None:
                await self._fenced.close(flush=False)

    async def _perform(self, effect: KeyedPublishEffect) -> KeyedPublishEvent | None:
        try:
            return await self._try_to_perform(effect)
        except OncelogError as error:
            publishing = isinstance(effect, PublishClaim | RepublishClaim)
            return PublishFailed(error) if publishing else StepFailed(error)

    async def _try_to_perform(self, effect: KeyedPublishEffect) -> KeyedPublishEvent | None:
        keys = self._shared.keys
        match effect:
            case ReadKey():
                return KeyRead(await keys.read(self._key))
            case ReserveIds():
                return await self._reserve()
            case WriteClaim(record, replaces):
                assert self._reserved is not None, "a claim is written while the producer's lock is held"
                status, found = await keys.write(self._key, record, replaces=replaces, lease=self._reserved.lease)
                return ClaimWritten(status, found)
            case PublishClaim(claim):
                return await self._publish(claim)
            case CheckHolder(name):
                return HolderChecked(await keys.holds(name))
            case FenceProducer(name):
                return await self._fence(name)
            case RepublishClaim(claim):
                return await self._republish(claim)
            case WriteAnswer(record, replaces):
                return AnswerWritten((await keys.write(self._key, record, replaces=replaces))[0])
            case ReleaseClaim(claim):
                if self._reserved is not None:
                    keyed, self._reserved = self._reserved, None
                    self._shared.producers.release(keyed, claim)
            case RetireProducer():
                for keyed_producer in (self._reserved, self._publishing):
                    if keyed_producer is not None:
                        self._shared.producers.retire(keyed_producer)
                self._leave()
            case ReturnAnswer() | RejectRequest():
                raise AssertionError("the end of a request is not performed")
            case _:
                assert_never(effect)
        return None

    async def _reserve(self) -> KeyedPublishEvent:
        self._reserved, claim = await self._shared.producers.reserve(*self._topic, len(self._messages.values))
        return IdsReserved(claim)

    async def _publish(self, claim: Claim) -> KeyedPublishEvent:
        keyed, self._reserved = self._reserved, None
        assert keyed is not None, "a claim is published while the producer's lock is still held"
        if not keyed.usable:
            self._reserved = keyed
            return PublishFailed(ServiceUnavailable("the keyed producer was retired during the request"))
        self._shared.producers.use(keyed, claim)
        self._publishing = keyed
        # Tasks start in the order of their creation, so the ids reach the producer in order.
        sending = asyncio.ensure_future(send(keyed.producer, _ids(claim), self._messages))
        keyed.lock.release()
        result = await sending
        return ClaimPublished(str(result.message_ids[0] or ""))

    async def _fence(self, name: str) -> KeyedPublishEvent:
        if self._fenced is not None:
            await self._fenced.close(flush=False)
        self._fenced = await self._shared.producers.fence(*self._topic, name)
        self._shared.settled()
        return FenceCompleted(SequenceId(self._fenced.last_sequence_id))

    async def _republish(self, claim: Claim) -> KeyedPublishEvent:
        """The log answers the duplicates with their positions. With deduplication off it would store them again."""
        assert self._fenced is not None, "republished only by the instance that fenced the producer"
        topic, topic_id = self._topic
        policies = await self._shared.policies.effective_of(topic, topic_id)
        if not policies.deduplication.value:
            return ClaimPublished("")
        result = await send(self._fenced, _ids(claim), self._messages)
        return ClaimPublished(str(result.message_ids[0] or ""))

    def _leave(self) -> None:
        """Retire a producer whose lock is still held: it is unknown whether the claim on it was written."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            self._shared.producers.retire(reserved)
            reserved.lock.release()
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            if self._core.state is not KeyedPublishState.ENDED:
                self._shared.producers.retire(publishing)
            self._shared.producers.done(publishing)


def _ids(claim: Claim) -> range:
    return range(claim.first, claim.last + 1)


def _fingerprint(messages: Messages, role: str) -> str:
    """The key belongs to the role that used it first: another one does not get its answer."""
    return hashlib.sha256(f"{role}\n{messages.fingerprint}".encode()).hexdigest() if role else messages.fingerprint
