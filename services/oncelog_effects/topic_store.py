"""Effects that are messages of other topics: what the outputs have stored says what has taken effect.

Each source has a producer of its own in each output. Its name begins with `effects/`, so its sequence ids are checked
even where deduplication is switched off. The k-th output of the message at an index has the id index * fanout_max + k,
in whatever topic it is. All outputs of a message are stored before it is acknowledged; what a crash leaves between is
sent again and recognized.

Rules
- The same message gives the same outputs. An id between those that are stored is of another version of the function:
  NotDeterministic (hazard outputs-of-another-code).
- There is no row: the position is the subscription's. Acknowledgements are late, so a claim may go back; the outputs of
  what is processed again are recognized. Some may be older than all ids that an output remembers of the producer.
  They count as stored: ids ascend in each output, and one behind them is stored.
- The store's id is made of the ids of the output topics and of fanout_max, so a topic that was deleted and created
  again is another store (hazard recreated-output).
- A producer that is fenced asks the log whether its consumer is still the active one, by a new claim, before it opens
  its name again.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from typing import NamedTuple

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import partitions_in
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.values.arguments import integer
from oncelog.client.values.messages import Message
from oncelog.core.effect_errors import EffectMisuse, NotDeterministic
from oncelog.core.errors import ContentDiffers, InvalidArgument, OncelogError, ProducerFenced, StaleSequence
from oncelog.core.names import EFFECTS, TopicName, parse_topic
from oncelog_effects.core.effects.ordered import AT_SUBSCRIPTION, Source, StoredPosition
from oncelog_effects.function_run import FunctionFailedError, functions_errors
from oncelog_effects.functions import in_thread
from oncelog_effects.store import ClaimLost, ClosingStore, SourceNames

FANOUT_MAX = 1024
_FANOUT_LIMIT = 65_536
_OUTPUTS_LIMIT = 100
#: The topic's id and a redo epoch are also in the producer's name, which has at most 255 characters.
EFFECT_CHARACTERS_MAX = 200
#: Values of the outputs that are made before they are sent, and of one message more.
_MADE_BYTES_MAX = 4 * 1024 * 1024
#: Messages of which the outputs are stored before anything more is received.
BATCH = 1_000


class Output(NamedTuple):
    """One message for one of the outputs. The other columns are as in `send` of a producer."""

    topic: str
    value: bytes
    key: bytes | str | None = None
    properties: Mapping[str, str] | None = None
    event_time_ms: int | None = None


#: What an application's function returns for one message.
Made = Iterable[Output] | AsyncIterable[Output] | Awaitable[Iterable[Output] | None] | None


class TopicEffects:
    """A store of effects in topics of the same cluster: the function yields an `Output` for each message that it wants.

        @oncelog.process("orders", subscription="enrich", effects=TopicEffects(["enriched"]))
        def enrich(message):
            yield Output("enriched", price(message.value), key=message.key)

    The same message must always give the same outputs: no clock, no random numbers, no other state.

    Args:
        outputs: names of topics, 1 to 100. A missing one is created where the namespace's policy allows it.
        fanout_max: outputs of one message, at most; 1 to 65,536. It must stay the same.

    Raises InvalidName, InvalidArgument.
    """

    def __init__(self, outputs: Sequence[str], *, fanout_max: int = FANOUT_MAX) -> None:
        if isinstance(outputs, str) or not 1 <= len(outputs) <= _OUTPUTS_LIMIT:
            message = f"outputs is a list of 1 to {_OUTPUTS_LIMIT} names of topics"
            raise InvalidArgument(message, field="outputs", limit=_OUTPUTS_LIMIT)
        self.outputs = tuple(dict.fromkeys(map(parse_topic, outputs)))
        self.fanout_max = integer("fanout_max", fanout_max, 1, _FANOUT_LIMIT)
        self.batch = BATCH

    def check_source(self, topic: TopicName, effect: str) -> None:
        """Raises InvalidArgument."""
        if any(output in (topic, replace(topic, partition=None)) for output in self.outputs):
            raise InvalidArgument(f"{topic} cannot be an output of itself: it would never end", field="outputs")
        if len(effect) > EFFECT_CHARACTERS_MAX:
            message = f"the name of an effect with outputs has at most {EFFECT_CHARACTERS_MAX} characters"
            raise InvalidArgument(message, field="effect", limit=EFFECT_CHARACTERS_MAX)

    def opened(self, client: AsyncClient) -> "TopicStore":
        return TopicStore(self, client)


class TopicStore(ClosingStore["Outputs"]):
    """TopicEffects at work in one cluster."""

    def __init__(self, settings: TopicEffects, client: AsyncClient) -> None:
        self._settings = settings
        self._client = client
        #: {source: its producers}
        self._outputs: dict[Source, Outputs] = {}

    async def store_id(self) -> str:
        """Looked up each time: a topic may be deleted and created again."""
        ids = await asyncio.gather(*(topic_id_of(self._client, output) for output in self._settings.outputs))
        text = "\n".join([str(self._settings.fanout_max), *sorted(ids)])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        decided = decide(AT_SUBSCRIPTION)
        redo = f"/{decided.rank.redo_epoch}" if decided.rank.redo_epoch else ""
        name = f"{EFFECTS}{source.topic_id}/{source.effect}{redo}"
        outputs = self._outputs.get(source)
        if outputs is None or outputs.name != name or outputs.failure is not None:
            await self._end(source)
            try:
                self._outputs[source] = await Outputs.opened(self._client, self._settings, name)
            except ProducerFenced as error:
                raise ClaimLost from error
        return decided

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[["Outputs"], Awaitable[None] | None] | None,
    ) -> None:
        if run is None:
            return  # a message that was given up has no outputs, and the log knows its dead letter
        outputs = self._outputs[source]
        try:
            running = run(outputs)
            assert isawaitable(running), "see `Outputs.of`"
            await running
        except FunctionFailedError as failed:
            error = failed.error
            if isinstance(error, ProducerFenced):
                raise ClaimLost from error
            if not isinstance(error, StaleSequence | ContentDiffers):
                raise
            raise NotDeterministic(
                f"{source.effect}: of a message in {claimed.position} to {following.position - 1} of its topic other "
                f"outputs are stored than the function gives now: {error.message}. The same message must give the "
                "same outputs; use another effect name and outputs of their own for another version of the function"
            ) from error

    async def _end(self, source: Source) -> None:
        outputs = self._outputs.pop(source, None)
        if outputs is not None:
            await outputs.close()

    async def close(self) -> None:
        for source in list(self._outputs):
            await self._end(source)


class Outputs:
    """The producers of one source, by output."""

    def __init__(self, settings: TopicEffects, name: str, producers: dict[TopicName, AsyncProducer]) -> None:
        self.name = name
        self._fanout_max = settings.fanout_max
        self._producers = producers

    @classmethod
    async def opened(cls, client: AsyncClient, settings: TopicEffects, name: str) -> "Outputs":
        """Fences the producers of every other process."""
        producers: dict[TopicName, AsyncProducer] = {}
        try:
            for topic in settings.outputs:
                producers[topic] = await client.create_producer(
                    str(topic), producer_name=name, on_unverified="accept", on_content_differs="raise"
                )
        except BaseException:
            for producer in producers.values():
                await producer.close(flush=False)
            raise
        return cls(settings, name, producers)

    @property
    def failure(self) -> OncelogError | None:
        """Why one of them cannot send any more; None: all can."""
        return next((each.failure for each in self._producers.values() if each.failure is not None), None)

    async def close(self) -> None:
        for producer in self._producers.values():
            await producer.close(flush=False)

    async def of(self, function: Callable[[Message], Made], messages: Sequence[Message]) -> None:
        """Run the function on each message, and store what it yields. Some are sent while the next ones are made.

        Raises what the function raises; EffectMisuse for what it must not yield; what `send_many` raises.
        """
        sending: asyncio.Task[None] | None = None
        done = 0
        try:
            while done < len(messages):
                made, count = await self._make(function, messages[done:])
                done += count
                if sending is not None:
                    await sending
                sending = asyncio.create_task(self._send(made))
            if sending is not None:
                await sending
        finally:
            if sending is not None and not sending.done():
                await asyncio.wait([sending])  # it belongs to this claim
                sending.exception()

    async def _make(
        self, function: Callable[[Message], Made], messages: Sequence[Message]
    ) -> tuple[dict[TopicName, "_Columns"], int]:
        """The outputs of the first messages, and of how many. A function that is not `async` runs in a thread."""
        columns: dict[TopicName, _Columns] = {}
        if isasyncgenfunction(function) or iscoroutinefunction(function):
            size = count = 0
            while count < len(messages) and size < _MADE_BYTES_MAX:
                outputs = await _made_async(function(messages[count]))
                size += self._add(columns, messages[count], outputs)
                count += 1
            return columns, count
        return columns, await in_thread(lambda: self._make_in_thread(columns, function, messages))

    def _make_in_thread(
        self, columns: dict[TopicName, "_Columns"], function: Callable[[Message], Made], messages: Sequence[Message]
    ) -> int:
        size = 0
        for count, message in enumerate(messages, 1):
            with functions_errors():  # a thread cannot hand over each of them
                made = function(message)
            if made is not None and not isinstance(made, Iterable):
                raise EffectMisuse(f"the function yields outputs, or returns a list of them, not {type(made).__name__}")
            size += self._add(columns, message, made or ())
            if size >= _MADE_BYTES_MAX:
                return count
        return len(messages)

    def _add(self, columns: dict[TopicName, "_Columns"], message: Message, outputs: Iterable[object]) -> int:
        """Returns the bytes of the values. Raises EffectMisuse."""
        size = 0
        for k, output in enumerate(outputs):
            if not isinstance(output, Output):
                raise EffectMisuse(f"the function yields an Output for each message, not {type(output).__name__}")
            topic = parse_topic(output.topic)
            if topic not in self._producers:
                raise EffectMisuse(f"{topic} is not among the outputs of TopicEffects: add it there")
            if k >= self._fanout_max:
                raise EffectMisuse(
                    f"the message at index {message.index} has more than {self._fanout_max} outputs: raise fanout_max, "
                    "with another effect name"
                )
            columns.setdefault(topic, _Columns([], [], [], [], [])).add(message.index * self._fanout_max + k, output)
            size += len(output.value)
        return size

    async def _send(self, made: "dict[TopicName, _Columns]") -> None:
        sends = [
            self._producers[topic].send_many(
                each.values, sequence_ids=each.ids, keys=each.keys, properties=each.properties,
                event_times_ms=each.event_times_ms,
            )
            for topic, each in made.items()
        ]  # fmt: skip
        answers = await asyncio.gather(*sends, return_exceptions=True)  # all are answered before anything is concluded
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer


class _Columns(NamedTuple):
    ids: list[int]
    values: list[bytes]
    keys: list[bytes | str | None]
    properties: list[Mapping[str, str] | None]
    event_times_ms: list[int | None]

    def add(self, sequence_id: int, output: Output) -> None:
        self.ids.append(sequence_id)
        self.values.append(output.value)
        self.keys.append(output.key)
        self.properties.append(output.properties)
        self.event_times_ms.append(output.event_time_ms)


async def _made_async(made: Made) -> Iterable[Output]:
    if isinstance(made, AsyncIterable):
        return [output async for output in made]
    return (await made or ()) if isawaitable(made) else ()


async def topic_id_of(client: AsyncClient, topic: TopicName) -> str:
    """Of a partitioned topic its first partition's: that one is never deleted or added alone. Creates a missing topic.

    Raises what a look-up raises, but for retriable errors.
    """
    lookup = network_of(client).lookup
    try:
        return (await persist(lambda _: lookup.find(topic), timeout_ms=None, what=f"the topic {topic}")).topic_id
    except InvalidArgument as error:
        if not partitions_in(error):
            raise
    return await topic_id_of(client, replace(topic, partition=0))
