"""The shell of `core.idempotency`: performs its effects on Redis and the log, one request at a time.

A request goes on when its sender has gone or its time is up: what was begun is recorded, so that the repeat finds it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from oncelog.client.producer import AsyncProducer
from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.core.http_publish.idempotency import (
    Answer,
    AnswerWritten,
    AskHolder,
    Begin,
    ClaimWritten,
    Effect,
    Event,
    Fenced,
    FenceProducer,
    GiveBack,
    HolderTold,
    KeyedPublish,
    KeyRead,
    PlaceReserved,
    Publish,
    PublishAgain,
    Published,
    PublishFailed,
    ReadKey,
    Refuse,
    ReservePlace,
    RetireLane,
    State,
    StepFailed,
    WriteAnswer,
    WriteClaim,
)
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId, TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.http_publish.keyed_producers import Lanes, OpenLane
from oncelog.metadata.http_publish.named_producers import send
from oncelog.metadata.http_publish.publish_body import Messages
from oncelog.stores.key_store import KeyStore
from oncelog.stores.policy_store import PolicyStore


@dataclass(frozen=True, slots=True)
class KeyedAnswer:
    """Where the messages are: message_id of the first, "" where not known; the others follow it in its entry."""

    claim: Claim
    message_id: str
    replayed: bool


class KeyedPublishes:
    """What the requests of this process share. settled: told of each claim of another that was settled here."""

    def __init__(
        self, keys: KeyStore, lanes: Lanes, policies: PolicyStore, *, settled: Callable[[], None] = lambda: None
    ) -> None:
        self.keys = keys
        self.lanes = lanes
        self.policies = policies
        self.settled = settled

    async def publish(self, topic: TopicName, key: str, messages: Messages) -> KeyedAnswer:
        """Raises the errors of `core.idempotency`, and why the topic cannot be published on."""
        topic_id = await self.lanes.topic_id(topic)
        return await _Request(self, topic, topic_id, key, messages).run()


class _Request:
    def __init__(
        self, shared: KeyedPublishes, topic: TopicName, topic_id: TopicId, key: str, messages: Messages
    ) -> None:
        self._shared = shared
        self._topic = (topic, topic_id)
        self._key = f"{topic_id}:{hashlib.sha256(key.encode()).hexdigest()}"
        self._messages = messages
        self._core = KeyedPublish(messages.fingerprint)
        #: whose turn this request has
        self._turn: OpenLane | None = None
        #: whose claim is on its way
        self._lane: OpenLane | None = None
        self._fenced: AsyncProducer | None = None

    async def run(self) -> KeyedAnswer:
        event: Event = Begin()
        try:
            while True:
                effects, answered = self._core.handle(event), None
                for effect in effects:
                    if isinstance(effect, Refuse):
                        raise effect.error
                    if isinstance(effect, Answer):
                        assert self._core.found is not None, "an answer has a record"
                        return KeyedAnswer(self._core.found.record.claim, effect.answer, effect.replayed)
                    answered = await self._performed(effect) or answered
                assert answered is not None, f"nothing comes of {effects}"
                event = answered
        finally:
            self._leave()
            if self._fenced is not None:
                await self._fenced.close(flush=False)

    async def _performed(self, effect: Effect) -> Event | None:
        try:
            return await self._perform(effect)
        except OncelogError as error:
            return PublishFailed(error) if isinstance(effect, Publish | PublishAgain) else StepFailed(error)

    async def _perform(self, effect: Effect) -> Event | None:
        keys = self._shared.keys
        match effect:
            case ReadKey():
                return KeyRead(await keys.read(self._key))
            case ReservePlace():
                return await self._reserve()
            case WriteClaim(record, replaces):
                assert self._turn is not None, "a claim is written in the lane's turn"
                status, found = await keys.write(self._key, record, replaces=replaces, lease=self._turn.lease)
                return ClaimWritten(status, found)
            case Publish(claim):
                return await self._publish(claim)
            case AskHolder(name):
                return HolderTold(await keys.holds(name))
            case FenceProducer(name):
                return await self._fence(name)
            case PublishAgain(claim):
                return await self._publish_again(claim)
            case WriteAnswer(record, replaces):
                return AnswerWritten((await keys.write(self._key, record, replaces=replaces))[0])
            case GiveBack(claim):
                if self._turn is not None:
                    lane, self._turn = self._turn, None
                    self._shared.lanes.give_back(lane, claim)
            case RetireLane():
                for mine in (self._turn, self._lane):
                    if mine is not None:
                        self._shared.lanes.retire(mine)
                self._leave()
            case Answer() | Refuse():
                raise AssertionError("an end is not performed")
            case _:
                assert_never(effect)
        return None

    async def _reserve(self) -> Event:
        self._turn, claim = await self._shared.lanes.reserve(*self._topic, len(self._messages.values))
        return PlaceReserved(claim)

    async def _publish(self, claim: Claim) -> Event:
        lane, self._turn = self._turn, None
        assert lane is not None, "what is claimed is published in the same turn"
        if not lane.usable:
            self._turn = lane
            return PublishFailed(ServiceUnavailable("the lane was retired meanwhile"))
        self._shared.lanes.use(lane, claim)
        self._lane = lane
        # Tasks start in the order in which they were made: so the ids reach the producer in order.
        sending = asyncio.ensure_future(send(lane.producer, _ids(claim), self._messages))
        lane.turn.release()
        result = await sending
        return Published(str(result.message_ids[0] or ""))

    async def _fence(self, name: str) -> Event:
        if self._fenced is not None:
            await self._fenced.close(flush=False)
        self._fenced = await self._shared.lanes.fence(*self._topic, name)
        self._shared.settled()
        return Fenced(SequenceId(self._fenced.last_sequence_id))

    async def _publish_again(self, claim: Claim) -> Event:
        """The log knows the ids, and tells where they are; switched off, it would store them again."""
        assert self._fenced is not None, "only by the producer that was fenced"
        topic, topic_id = self._topic
        policies = await self._shared.policies.effective_of(topic, topic_id)
        if not policies.deduplication.value:
            return Published("")
        result = await send(self._fenced, _ids(claim), self._messages)
        return Published(str(result.message_ids[0] or ""))

    def _leave(self) -> None:
        """Whatever happened: a turn that is held ends with its lane, for what became of its claim is not known."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._shared.lanes.retire(turn)
            turn.turn.release()
        lane, self._lane = self._lane, None
        if lane is not None:
            if self._core.state is not State.OVER:
                self._shared.lanes.retire(lane)
            self._shared.lanes.done(lane)


def _ids(claim: Claim) -> range:
    return range(claim.first, claim.last + 1)
