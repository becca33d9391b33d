"""Publishes the dead letters of a subscription to their origin again, each once: any replica may do it, again.

    the dead-letter topic -> an exclusive consumer of a subscription of its own -> published -> acknowledged there

- The subscription on the dead-letter topic keeps which letters are published. It has one consumer at a time, so a
  second redrive of the same letters is refused.
- The producer name on the origin stands for the dead-letter topic and the subscription; the sequence id is the index of
  the letter. So a letter that was published and not acknowledged is a duplicate when it is published again.
- Letters are acknowledged in parts, each before the next one is published: what a killed redrive has left
  unacknowledged is the newest batch of its producer, which every owner remembers.
- A duplicate counts only if the stored message is the letter (hazard foreign-producer-name).
- A letter that cannot be published is not acknowledged, and is named. Every other error ends the redrive: repeat it.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.network.start_position import find_index
from oncelog.client.producing.producer import AsyncProducer, topic_id_of
from oncelog.client.stored import stored_message
from oncelog.client.values.messages import Message
from oncelog.client.values.results import SendResult
from oncelog.core.errors import (
    Conflict,
    ConsumerBusy,
    CorruptEntry,
    DeadlineExceeded,
    InvalidArgument,
    LimitReached,
    OncelogError,
    ServiceUnavailable,
    StaleSequence,
    SubscriptionNotFound,
    TopicNotFound,
)
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog.core.ids import TopicId
from oncelog.core.names import DEAD_LETTERS, REDRIVE, REDRIVE_TOPIC, TopicName, dead_letter_topic, parse_topic
from oncelog.metadata.dead_letters.dead_letter_service import ORIGIN, READ_TIMEOUT_S, send_letters
from oncelog.metadata.topics.subscription_calls import CALL_TIMEOUT_MS, SubscriptionCalls
from oncelog.metadata.topics.topic_lookup import TopicLookup

#: How long one request goes on. What is left then is for the next one.
REDRIVE_S = 20.0
#: When it is given up, while a letter is being published or acknowledged.
GIVE_UP_S = 25.0
#: Letters that are received at once. What is published before it is acknowledged: one batch of these bytes.
PART_LETTERS = 500
PART_BYTES = 1024 * 1024
#: Letters that are named in an answer.
NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A letter that could not be published. index: in the dead-letter topic."""

    index: int
    reason: str


@dataclass(slots=True)
class Redriven:
    """What one request did. redriven: letters that are published and acknowledged; already: of these, how many an
    earlier request had published. kept: the first of those that could not be. left: not looked at."""

    redriven: int = 0
    already: int = 0
    kept_count: int = 0
    kept: list[KeptLetter] = field(default_factory=list)
    left: int = 0

    def keep(self, index: int, reason: str, count: int = 1) -> None:
        self.kept_count += count
        if len(self.kept) < NAMED_MAX:
            self.kept.append(KeptLetter(index, reason))


@dataclass(frozen=True, slots=True)
class Letters:
    """The letters of one subscription of a topic with all its partitions. where: their topic."""

    topic: TopicName
    subscription: str
    where: TopicName

    @classmethod
    def of(cls, topic: TopicName, subscription: str, named: str) -> "Letters":
        """named: the dead-letter topic that consumers name; empty: the default. Raises InvalidName, InvalidArgument."""
        if topic.partition is not None:
            whole = replace(topic, partition=None)
            message = f"the partitions of {whole} share their dead letters: redrive those of {whole}"
            raise InvalidArgument(message, field="topic")
        return cls(topic, subscription, dead_letter_topic(topic, subscription, named))

    @property
    def kept_by(self) -> str:
        """The subscription that keeps which letters are published; several topics may share their dead-letter topic."""
        return "redrive-" + hashlib.sha256(f"{self.topic}\n{self.subscription}".encode()).hexdigest()[:16]

    def producer_name(self, letters_id: TopicId) -> str:
        subscription = self.subscription
        if len(subscription) > 128:  # names of producers are shorter than both
            subscription = hashlib.sha256(subscription.encode()).hexdigest()
        return f"{REDRIVE}{letters_id}/{subscription}"

    def origin_of(self, message: Message) -> TopicName | str | None:
        """The topic to which a letter goes; why it cannot; None for what is no letter of these."""
        found = message.properties
        try:
            origin = parse_topic(found.get(f"{ORIGIN}topic", ""))
        except OncelogError:
            return None
        mine = (self.topic, self.subscription)
        if (replace(origin, partition=None), found.get(f"{ORIGIN}subscription")) != mine:
            return None
        if not (message.producer_name or "").startswith(DEAD_LETTERS):
            return f"producer {message.producer_name} has stored it, which is not Oncelog's"
        if omitted := found.get(f"{ORIGIN}omitted"):
            return f"it has no content of its message: {omitted}"
        return origin


class Redrive:
    """client: with the rights of the services; the caller's rights were checked."""

    def __init__(
        self,
        client: AsyncClient,
        lookup: TopicLookup,
        subscriptions: SubscriptionCalls,
        *,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        self._give_up_s = give_up_s
        self._client = client
        self._lookup = lookup
        self._subscriptions = subscriptions

    async def run(self, letters: Letters, *, letters_max: int) -> Redriven:
        """Returns when so many letters are published, all were looked at, or REDRIVE_S have passed.

        Raises TopicNotFound if there is no dead-letter topic, Conflict while another redrive of the letters is running,
        and the errors of consumers and producers: what is published by then stays so, and is not published again.
        """
        where = str(letters.where)
        letters_id = await self._find(letters)
        if await self._client.last_message_id(where) is None:
            return Redriven()
        try:
            consumer = await self._client.subscribe(
                where, subscription=letters.kept_by, start=EARLIEST, receive_window=PART_LETTERS,
                properties={REDRIVE_TOPIC: str(letters.topic), "redrive.subscription": letters.subscription},
            )  # fmt: skip
        except ConsumerBusy as error:
            raise Conflict(f"another redrive of the letters in {where} is running: wait for its end") from error
        async with AsyncExitStack() as stack:
            stack.push_async_callback(consumer.close, flush=False)
            run = _Run(letters, letters_id, self._client, self._lookup, consumer, stack)
            backlog = (await self._subscriptions.describe(letters.where, letters.kept_by))["msg_backlog"]
            try:
                async with asyncio.timeout(self._give_up_s):
                    return await run.all(int(backlog), letters_max)
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"the redrive of {where} did not end within {self._give_up_s:g} s{run.trouble}: repeat it; no "
                    "letter is published twice"
                ) from error

    async def waiting(self, letters: Letters) -> int:
        """Messages of the dead-letter topic that no redrive of these letters has published or passed over."""
        await self._find(letters)
        try:
            return int((await self._subscriptions.describe(letters.where, letters.kept_by))["msg_backlog"])
        except SubscriptionNotFound:  # there was no redrive
            network = network_of(self._client)
            found = await find_index(
                network, letters.where, EARLIEST, inclusive=False, timeout_ms=CALL_TIMEOUT_MS, create=False
            )
            return int(found.next_index - found.begins_at)

    async def _find(self, letters: Letters) -> TopicId:
        """The id of the dead-letter topic. Raises TopicNotFound, InvalidArgument."""
        where = str(letters.where)
        try:
            record = await self._lookup.find(letters.where)
        except TopicNotFound as error:
            raise TopicNotFound(
                f"dead-letter topic {where} does not exist: no message has become a dead letter, or the consumers name "
                "another topic: give it as dead_letter_topic",
                topic=where,
            ) from error
        if record.partitions:
            raise InvalidArgument(f"{where} is partitioned, so it has no dead letters", field="dead_letter_topic")
        return record.topic_id


class _Run:
    """One request. stack: closes what it opens."""

    def __init__(
        self,
        letters: Letters,
        letters_id: TopicId,
        client: AsyncClient,
        lookup: TopicLookup,
        consumer: AsyncConsumer,
        stack: AsyncExitStack,
    ) -> None:
        self._letters = letters
        self._letters_id = letters_id
        self._client = client
        self._lookup = lookup
        self._consumer = consumer
        self._stack = stack
        self._done = Redriven()
        #: of each origin; or why it takes no letters
        self._producers: dict[TopicName, AsyncProducer | str] = {}

    @property
    def trouble(self) -> str:
        """Why letters are not published now, as far as that is known."""
        opened = (each for each in self._producers.values() if not isinstance(each, str))
        return next((f" ({each.last_error.message})" for each in opened if each.last_error is not None), "")

    async def all(self, backlog: int, letters_max: int) -> Redriven:
        """backlog: letters that are not acknowledged; they come in order."""
        done, ends_at = self._done, asyncio.get_running_loop().time() + REDRIVE_S
        left = backlog
        while left > 0 and done.redriven < letters_max:
            wait_s = ends_at - asyncio.get_running_loop().time()
            if wait_s <= 0:
                break
            wanted = min(PART_LETTERS, left, letters_max - done.redriven)
            try:
                async with asyncio.timeout(wait_s):
                    messages = await self._consumer.receive_batch(wanted)
            except TimeoutError:
                break
            except CorruptEntry as error:
                count = int(error.details.get("count") or 1)
                done.keep(int(error.details.get("first_index") or 0), error.message, count)
                left -= count
                continue
            left -= len(messages)
            for part in _parts(messages):
                await self._redrive(part)
        if left == backlog > 0:
            raise DeadlineExceeded(f"no letter of {self._letters.where} arrived within {REDRIVE_S:g} s: try again")
        done.left = max(0, left)
        return done

    async def _redrive(self, messages: Sequence[Message]) -> None:
        """Publish these, then acknowledge those that are published, and those that are none of the letters."""
        settled: list[Message] = []
        by_origin: dict[TopicName, list[Message]] = {}
        for message in messages:
            if message.message_id.topic_id != self._letters_id:
                raise ServiceUnavailable(f"{self._letters.where} was deleted and created again meanwhile: try again")
            match self._letters.origin_of(message):
                case None:
                    settled.append(message)
                case str(reason):
                    self._done.keep(message.index, reason)
                case TopicName() as origin:
                    by_origin.setdefault(origin, []).append(message)
        published: list[Message] = []
        for origin, its in by_origin.items():
            published += await self._publish(origin, its)
        settled += published
        if settled and not (await self._consumer.ack(settled)).durable:
            raise LimitReached(
                f"subscription {self._letters.kept_by} of {self._letters.where} cannot store which letters are "
                "published: its ack state is at its limit"
            )
        self._done.redriven += len(published)

    async def _publish(self, origin: TopicName, letters: list[Message]) -> list[Message]:
        """Those that are stored in the origin."""
        if origin not in self._producers:
            self._producers[origin] = await self._open(origin)
        producer = self._producers[origin]
        if isinstance(producer, str):
            for letter in letters:
                self._done.keep(letter.index, producer)
            return []
        stored: list[Message] = []
        last, fresh = producer.last_sequence_id, list[Message]()
        for letter in letters:
            if letter.index <= last:
                stored += [letter] if await self._is_stored(producer, letter) else []
            elif len(letter.value) > producer.message_bytes_max:
                reason = f"it has {len(letter.value)} bytes, and {origin} takes {producer.message_bytes_max}"
                self._done.keep(letter.index, reason)
            else:
                fresh.append(letter)
        if fresh:
            await send_letters(producer, fresh, [letter.index for letter in fresh])
        return stored + fresh

    async def _open(self, origin: TopicName) -> AsyncProducer | str:
        """Not on a topic that would be created by that."""
        try:
            record = await self._lookup.find(origin)
        except TopicNotFound:
            return f"topic {origin} does not exist any more"
        if record.partitions:
            return f"topic {origin} is partitioned now"
        producer = await self._client.create_producer(
            str(origin),
            producer_name=self._letters.producer_name(self._letters_id),
            batch_bytes_max=PART_BYTES,
            on_unverified="accept",
            on_content_differs="accept",
        )
        self._stack.push_async_callback(producer.close, flush=False)
        if topic_id_of(producer) != record.topic_id:
            raise ServiceUnavailable(f"topic {origin} was deleted and created again meanwhile: try again")
        return producer

    async def _is_stored(self, producer: AsyncProducer, letter: Message) -> bool:
        """Of a letter at or below the highest one that was published. If not, it is kept."""
        try:
            (sent,) = (await send_letters(producer, [letter], [letter.index])).results
        except StaleSequence:
            reason = "a later letter was published before it could be: publish its content yourself"
            self._done.keep(letter.index, reason)
            return False
        assert isinstance(sent, SendResult), "an error is raised"
        found = sent.message_id
        if not sent.verified or found is None:
            reason = (
                "it is unknown whether it was published: the log does not remember so old a letter. Look for property "
                f"{ORIGIN}index={letter.properties.get(f'{ORIGIN}index')} in {producer.topic}"
            )
        elif sent.content_differs or (sent.content_differs is None and not await self._reads(producer, letter, found)):
            reason = (
                f"another message is stored at {found} of {producer.topic} under the letter's producer name and id: "
                "publish its content yourself"
            )
        else:
            self._done.already += 1
            return True
        self._done.keep(letter.index, reason)
        return False

    async def _reads(self, producer: AsyncProducer, letter: Message, found: MessageId) -> bool:
        """Whether the letter is what is stored there."""
        message = await stored_message(self._client, producer.topic, found, timeout_s=READ_TIMEOUT_S)
        content = None if message is None else (message.value, dict(message.properties))
        return content == (letter.value, dict(letter.properties))


def _parts(letters: Sequence[Message]) -> list[list[Message]]:
    """Of at most PART_BYTES, or one letter: a batch, which is stored as a whole or not at all."""
    parts: list[list[Message]] = []
    room = 0
    for letter in letters:
        size = len(letter.value) + len(letter.key or b"") + sum(len(k) + len(v) for k, v in letter.properties.items())
        if size > room:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(letter)
        room -= size
    return parts
