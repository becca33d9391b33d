"""Has dead letters published: the owner reads them, and a metadata service stores them in the dead-letter topic.

    PublishDeadLetter … --in order, up to LETTERS_MAX at once--> metadata service --stored--> DeadLetterStored
                                                                              --topic deleted--> DeadLetterTopicReplaced

One request is in flight for each subscription and dead-letter topic. Each letter has a number that is durable already,
and one producer name stands for the pair, so a repeated request stores nothing twice. Whatever fails is repeated: a
dead letter is never given up, and its message stays unacknowledged until it is stored.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from oncelog.core.errors import CorruptEntry, InvariantViolated, NotFound, OncelogError
from oncelog.core.ids import SubscriptionNumber, TopicId
from oncelog.core.subscriptions.events import (
    DeadLetterStored,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    PublishDeadLetter,
    ReadMessages,
    ResolveDeadLetterTopic,
)
from oncelog.rpc.metadata_codec import PUBLISH_DEAD_LETTERS, RESOLVE_DEAD_LETTER_TOPIC
from oncelog.topic_owner.message_reads import MessageReads
from oncelog.wire import metadata_pb2 as pb

if TYPE_CHECKING:
    from oncelog.topic_owner.topic_runner import TopicRunner

logger = logging.getLogger(__name__)

#: Letters, and bytes of their entries, of one request.
LETTERS_MAX = 100
LETTERS_BYTES_MAX = 4 * 1024 * 1024
RESOLVE_TIMEOUT_MS = 15_000
PUBLISH_TIMEOUT_MS = 60_000
RETRY_S = 1.0
_Pair = tuple[SubscriptionNumber, TopicId]


class DeadLetterShell:
    """The dead letters of one topic."""

    def __init__(self, runner: "TopicRunner", start: Callable[[Coroutine[None, None, None]], None]) -> None:
        self._runner = runner
        self._start = start
        self._reads = MessageReads(runner)
        #: {subscription: name of its dead-letter topic}, as its consumers gave it
        self._names: dict[SubscriptionNumber, str] = {}
        #: {pair: letters in order}; a pair has a task as long as it is here
        self._waiting: dict[_Pair, deque[PublishDeadLetter]] = {}

    def resolve(self, effect: ResolveDeadLetterTopic) -> None:
        self._names[effect.number] = effect.topic
        self._start(self._resolve(effect))

    def publish(self, effect: PublishDeadLetter) -> None:
        pair = effect.number, effect.topic_id
        waiting = self._waiting.get(pair)
        if waiting is None:
            self._waiting[pair] = deque([effect])
            self._start(self._publish_all(pair))
        else:
            waiting.append(effect)

    async def _resolve(self, effect: ResolveDeadLetterTopic) -> None:
        topic_id = await self._find(effect.topic)
        self._runner.post(DeadLetterTopicResolved(effect.number, effect.topic, topic_id))

    async def _find(self, topic: str) -> TopicId | None:
        """The id of the topic, created if it is missing. None: not known now; the core asks again."""
        request = pb.ResolveDeadLetterTopicRequest(topic=topic)
        try:
            answer = await self._runner.parts.metadata.call(
                RESOLVE_DEAD_LETTER_TOPIC, request, timeout_ms=RESOLVE_TIMEOUT_MS
            )
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("dead letters of %s wait for their topic %s: %s", self._runner.name, topic, error.message)
            return None
        return TopicId(answer.topic_id)

    async def _publish_all(self, pair: _Pair) -> None:
        waiting = self._waiting[pair]
        try:
            while waiting:
                try:
                    if not await self._publish_some(pair, waiting):
                        return
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    logger.warning("dead letters of topic %s wait: %s", self._runner.name, error.message)
                    await asyncio.sleep(RETRY_S)
        finally:
            del self._waiting[pair]

    async def _publish_some(self, pair: _Pair, waiting: deque[PublishDeadLetter]) -> bool:
        """Publish the first letters. Returns False if the dead-letter topic was deleted; the core numbers anew."""
        number, topic_id = pair
        subscription = self._subscription_name(number)
        request = pb.PublishDeadLettersRequest(
            topic_id=topic_id, origin_topic=self._runner.name, subscription=subscription,
            producer_name=f"dead-letters/{self._runner.topic_id}/{number}",
        )  # fmt: skip
        size = 0
        for letter in list(waiting)[:LETTERS_MAX]:
            wire = await self._letter(letter)
            size += len(wire.entry)
            if request.letters and size > LETTERS_BYTES_MAX:
                break
            request.letters.append(wire)
        answer = await self._runner.parts.metadata.call(PUBLISH_DEAD_LETTERS, request, timeout_ms=PUBLISH_TIMEOUT_MS)
        if answer.topic_deleted:
            name = self._names.get(number)
            if name is None:
                message = (
                    f"the dead-letter topic of subscription {subscription} was deleted: its next consumer names one"
                )
                raise NotFound(message)
            found = await self._find(name)
            if found is None or found == topic_id:
                raise NotFound(f"dead-letter topic {name} was deleted and is not there again yet")
            waiting.clear()
            self._runner.post(DeadLetterTopicReplaced(number, topic_id, found))
            return False
        for _ in request.letters:
            waiting.popleft()
        self._runner.post(DeadLetterStored(number, topic_id, request.letters[-1].sequence))
        return True

    def _subscription_name(self, number: SubscriptionNumber) -> str:
        """Empty if the subscription was deleted: its pending letters are published all the same."""
        serving = self._runner.core.serving
        state = None if serving is None else serving.acks.state.subscriptions.get(number)
        return "" if state is None else state.name

    async def _letter(self, letter: PublishDeadLetter) -> pb.DeadLetter:
        read = await self._reads.read(ReadMessages(letter.number, letter.index, bytes_max=1))
        entry = read.entries[0] if read.entries else None
        if entry is None or not entry.base_index <= letter.index < entry.base_index + entry.count:
            raise CorruptEntry(f"message {letter.index} of {self._runner.name} is not in the log")
        return pb.DeadLetter(entry=bytes(entry.data), message_index=letter.index, sequence=letter.sequence)
