"""Has dead letters published: the owner reads them, and a metadata service stores them in the dead-letter topic.

    PublishDeadLetter … --in order, up to LETTERS_MAX at once--> metadata service --stored--> DeadLetterStored
                                                                              --topic deleted--> DeadLetterTopicReplaced
                                                                              --failed--> DeadLettersWaiting, a pause

One request is in flight for each subscription and dead-letter topic. Each letter has a number that is durable already,
and one producer name stands for the pair, so a repeated request stores nothing twice. A dead letter is never given up,
and its message stays unacknowledged until it is stored. Whatever fails is repeated after a pause that grows to a
minute: what stands against it, such as a quota or a missing right, can be changed by an administrator, who finds the
reason in the statistics of the subscription. A request that was refused is repeated with its first letter alone.

Requests carry single messages, not the batches that hold them, and every message fits (hazard oversized-dead-letters).
A message that is in the log no more, is in chunks, or cannot be decoded, is left out of its letter.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine

from crc32c import crc32c

from oncelog.core.delivery.events import (
    DeadLetterStored,
    DeadLettersWaiting,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    PublishDeadLetter,
    ReadMessages,
    ResolveDeadLetterTopic,
)
from oncelog.core.errors import ChunkedMessage, CorruptEntry, InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.single_message import batch_index_of, single_message
from oncelog.core.ids import SubscriptionNumber, TopicId
from oncelog.core.names import DEAD_LETTERS
from oncelog.core.topic.topic import Topic
from oncelog.core.topic_events.events import TopicEvent
from oncelog.rpc.codecs.metadata_codec import DEAD_LETTERS_BYTES_MAX, PUBLISH_DEAD_LETTERS, RESOLVE_DEAD_LETTER_TOPIC
from oncelog.runtime.backoff import Backoff
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.metadata_calls import MetadataCalls
from oncelog.wire import metadata_pb2 as pb

logger = logging.getLogger(__name__)

#: Letters of one request; DEAD_LETTERS_BYTES_MAX limits their bytes, unless it is a single one.
LETTERS_MAX = 100
RESOLVE_TIMEOUT_MS = 15_000
PUBLISH_TIMEOUT_MS = 60_000
#: The pause after a failure; it doubles.
PAUSE_MS_MIN = 1_000
PAUSE_MS_MAX = 60_000
_Pair = tuple[SubscriptionNumber, TopicId]


class DeadLetterShell:
    """The dead letters of one topic."""

    def __init__(
        self,
        core: Topic,
        reads: MessageReads,
        metadata: MetadataCalls,
        *,
        post: Callable[[TopicEvent], None],
        start: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._core = core
        self._reads = reads
        self._metadata = metadata
        self._post = post
        self._start = start
        #: {subscription: name of its dead-letter topic}, as its consumers gave it
        self._names: dict[SubscriptionNumber, str] = {}
        #: {pair: letters in order}; a pair has a task as long as it is here
        self._waiting: dict[_Pair, deque[PublishDeadLetter]] = {}

    @property
    def _topic(self) -> str:
        return self._core.ownership.record.name

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
        self._post(DeadLetterTopicResolved(effect.number, effect.topic, topic_id))

    async def _find(self, topic: str) -> TopicId | None:
        """The id of the topic, created if it is missing. None: not known now; the core asks again."""
        request = pb.ResolveDeadLetterTopicRequest(topic=topic)
        try:
            answer = await self._metadata.call(RESOLVE_DEAD_LETTER_TOPIC, request, timeout_ms=RESOLVE_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError as error:
            logger.warning("dead letters of %s wait for their topic %s: %s", self._topic, topic, error.message)
            return None
        return TopicId(answer.topic_id)

    async def _publish_all(self, pair: _Pair) -> None:
        waiting, backoff, count_max = self._waiting[pair], Backoff(_pause_ms), LETTERS_MAX
        try:
            while waiting:
                try:
                    if not await self._publish_some(pair, waiting, count_max):
                        return
                except InvariantViolated:
                    raise
                except OncelogError as error:
                    logger.warning("dead letters of topic %s wait: %s", self._topic, error.message)
                    self._post(DeadLettersWaiting(pair[0], error.message))
                    count_max = LETTERS_MAX if error.retriable else 1
                    await backoff.pause()
                else:
                    count_max = LETTERS_MAX
                    backoff.reset()
        finally:
            del self._waiting[pair]

    async def _publish_some(self, pair: _Pair, waiting: deque[PublishDeadLetter], count_max: int) -> bool:
        """Publish the first letters. Returns False if the dead-letter topic was deleted; the core numbers anew."""
        number, topic_id = pair
        subscription = self._subscription_name(number)
        request = pb.PublishDeadLettersRequest(
            topic_id=topic_id, origin_topic=self._topic, subscription=subscription,
            producer_name=f"{DEAD_LETTERS}{self._core.ownership.topic_id}/{number}",
        )  # fmt: skip
        size = 0
        for letter in list(waiting)[:count_max]:
            wire = await self._letter(letter)
            size += wire.ByteSize()
            if request.letters and size > DEAD_LETTERS_BYTES_MAX:
                break
            request.letters.append(wire)
        answer = await self._metadata.call(PUBLISH_DEAD_LETTERS, request, timeout_ms=PUBLISH_TIMEOUT_MS)
        if answer.topic_deleted:
            await self._replace(pair, subscription)
            waiting.clear()
            return False
        for _ in request.letters:
            waiting.popleft()
        self._post(DeadLetterStored(number, topic_id, request.letters[-1].sequence))
        return True

    async def _replace(self, pair: _Pair, subscription: str) -> None:
        """The dead-letter topic was deleted. Raises ServiceUnavailable, to be asked again, until there is another."""
        number, topic_id = pair
        name = self._names.get(number)
        if name is None:
            message = f"the dead-letter topic of subscription {subscription} was deleted: its next consumer names one"
            raise ServiceUnavailable(message)
        found = await self._find(name)
        if found is None or found == topic_id:
            raise ServiceUnavailable(f"dead-letter topic {name} was deleted and is not there again yet")
        self._post(DeadLetterTopicReplaced(number, topic_id, found))

    def _subscription_name(self, number: SubscriptionNumber) -> str:
        """Empty if the subscription was deleted: its pending letters are published all the same."""
        serving = self._core.serving
        state = None if serving is None else serving.acks.state.subscriptions.get(number)
        return "" if state is None else state.name

    async def _letter(self, letter: PublishDeadLetter) -> pb.DeadLetter:
        """Raises the errors of a read that may succeed later."""
        wire = pb.DeadLetter(message_index=letter.index, sequence=letter.sequence, reason=letter.reason)
        read = await self._reads.read(ReadMessages(letter.number, letter.index, bytes_max=1))
        if not read.entries:
            raise ServiceUnavailable(f"message {letter.index} of {self._topic} cannot be read now")
        data = bytes(read.entries[0].data)
        try:
            wire.batch_index = batch_index_of(data, letter.index)
            wire.entry = single_message(data, letter.index, crc32c)
        except (ChunkedMessage, CorruptEntry, MessageEncrypted) as error:
            wire.omitted = error.message
        return wire


def _pause_ms(failures: int) -> int:
    return min(PAUSE_MS_MIN << min(failures - 1, 20), PAUSE_MS_MAX)
