"""Functions whose effects happen once: the decorator `process`, and `run` for a program of them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar, cast

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.consuming.subscribing import first_indexes
from oncelog.client.network.partition_watch import PartitionWatch
from oncelog.client.network.start_position import Place
from oncelog.client.values.arguments import check_takes, choice, integer
from oncelog.client.values.encrypted import choices_of
from oncelog.client.values.messages import Message
from oncelog.core.effect_errors import EffectMisuse
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import EARLIEST
from oncelog.core.names import TopicName, check_part, dead_letter_topic, parse_topic
from oncelog.runtime.exception_groups import leaves_of
from oncelog.runtime.tasks import asked_cancellations_only
from oncelog_effects.consumer import EffectsConsumer, Subscribing
from oncelog_effects.source import Attach, EffectsSource, Limits
from oncelog_effects.status import SourceStatus
from oncelog_effects.store import EffectsStore, StoreInCluster
from oncelog_effects.topic_store import Outputs, TopicEffects

ConnectionT = TypeVar("ConnectionT")
BATCH_MAX = 10_000
BATCH_BYTES = 4 << 20
BATCH_BYTES_MAX = 1 << 30
ATTEMPTS_MAX = 1_000_000
CONCURRENCY_MAX = 1_000
_LOCAL_URL = "oncelog://127.0.0.1:6650"
OrderedTypeName = Literal["exclusive", "failover"]
#: of the application; with TopicEffects it yields or returns outputs
EffectFunction = Callable[..., Awaitable[Iterable[Any] | None] | Iterable[Any] | AsyncIterable[Any] | None]
OnCorruptName = Literal["raise", "skip"]
OnEncryptedName = Literal["raise", "pass"]
_TYPES: dict[str, OrderedTypeName] = {"exclusive": "exclusive", "failover": "failover"}


class Process(Generic[ConnectionT]):
    """A function, the subscription whose messages it gets, and the store of its effects.

    Attributes:
        function: as it was given; calling the Process calls it.
        statuses: {topic or partition: where it is}, while the process runs.
    """

    def __init__(
        self,
        function: EffectFunction,
        topic: str,
        *,
        subscription: str,
        effects: EffectsStore[ConnectionT] | StoreInCluster[ConnectionT],
        effect: str | None = None,
        type: OrderedTypeName = "failover",  # noqa: A002  # the name that users know from subscribe
        start: Place = EARLIEST,
        batch: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        concurrency: int = 1,
        max_attempts: int | None = None,
        dead_letter_topic: str | None = None,
        on_corrupt: OnCorruptName = "raise",
        on_encrypted: OnEncryptedName = "raise",
    ) -> None:
        """See `process`."""
        _check_store(effects)
        if isinstance(effects, TopicEffects):
            check_takes("function", function, "message")
        else:
            check_takes("function", function, "message" if batch is None else "messages", "connection")
        self.function = function
        self.__doc__ = function.__doc__
        self.topic = parse_topic(topic)
        self.subscription = check_part(subscription, field="subscription")
        self.effect = check_part(subscription if effect is None else effect, field="effect")
        self.statuses: dict[str, SourceStatus] = {}
        self._how = Subscribing(
            self.subscription, self.effect, choice("type", _TYPES, type),
            _checked_dead_letters(self.topic, self.subscription, dead_letter_topic, max_attempts),
            *choices_of(on_corrupt, on_encrypted),
        )  # fmt: skip
        self._start = start
        default = 1
        if isinstance(effects, StoreInCluster):
            effects.check_source(self.topic, self.effect)
            default = effects.batch
        self._limits = Limits(
            default if batch is None else integer("batch", batch, 1, BATCH_MAX),
            integer("batch_bytes", batch_bytes, 1, BATCH_BYTES_MAX),
            None if max_attempts is None else integer("max_attempts", max_attempts, 1, ATTEMPTS_MAX),
            asyncio.Semaphore(integer("concurrency", concurrency, 1, CONCURRENCY_MAX)),
        )
        self._takes_batches = batch is not None
        self._effects = effects

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    async def run(self, client: AsyncClient) -> None:
        """Until it is cancelled. Raises what no repetition helps against: a final error of the log or of the store."""
        await asked_cancellations_only(self._run_opened(client), what=f"the work of effects {self.effect}")

    async def _run_opened(self, client: AsyncClient) -> None:
        if not isinstance(self._effects, StoreInCluster):
            await self._run(client, self._effects)
            return
        store = self._effects.opened(client)
        try:
            await self._run(client, store)
        finally:
            await store.close()

    async def _run(self, client: AsyncClient, store: EffectsStore[ConnectionT]) -> None:
        topics = await first_indexes(network_of(client), self.topic, self._start, inclusive=False, timeout_ms=None)
        async with asyncio.TaskGroup() as group:

            def begin(topic: TopicName, first_index: int) -> None:
                group.create_task(self._source(client, store, topic, first_index).run())

            for topic, first_index in topics:
                begin(topic, first_index)
            if self.topic.partition is None and topics[0][0].partition is not None:
                await self._follow(client, len(topics), begin)

    async def _follow(self, client: AsyncClient, known: int, begin: Callable[[TopicName, int], None]) -> None:
        """Partitions that the topic gets: from their first message."""

        async def follow(counts: Any) -> None:
            nonlocal known
            for number in range(known, counts.now):
                begin(replace(self.topic, partition=number), 0)
            known = max(known, counts.now)

        watch = PartitionWatch(self.topic, network_of(client), follow)
        counts = await watch.begin(None)
        await follow(counts)
        watch.start(counts)
        try:
            await asyncio.get_running_loop().create_future()  # until it is cancelled
        finally:
            watch.end()

    def _source(
        self, client: AsyncClient, store: EffectsStore[ConnectionT], topic: TopicName, first_index: int
    ) -> EffectsSource[ConnectionT]:
        async def attach(store_id: str, dead_letters: bool) -> EffectsConsumer:
            return await EffectsConsumer.attach(
                client, topic, first_index, self._how, store_id, dead_letters=dead_letters
            )

        source = self.source(client, attach, store, str(topic), self._limits)
        self.statuses[str(topic)] = source.status
        return source

    def source(
        self,
        client: AsyncClient,
        attach: Attach,
        store: EffectsStore[ConnectionT],
        topic: str,
        limits: Limits | None = None,
    ) -> EffectsSource[ConnectionT]:
        """The work of one topic or partition. client, attach: its log. limits: None: those of a program of its own that
        gives nothing up."""
        own = self._limits._replace(turns=asyncio.Semaphore(1), attempts=None) if limits is None else limits
        return EffectsSource(
            client, attach, store, self._call, own, topic=topic, subscription=self.subscription, effect=self.effect
        )

    @property
    def effects(self) -> EffectsStore[ConnectionT] | StoreInCluster[ConnectionT]:
        return self._effects

    def _call(self, messages: Sequence[Message], connection: ConnectionT) -> Awaitable[None] | None:
        if isinstance(connection, Outputs):
            return connection.of(self.function, messages)
        made = self.function(messages if self._takes_batches else messages[0], connection)
        if isinstance(made, Generator | AsyncGenerator | list):
            # The body of a generator has not run: without an error its messages would pass without an effect. What
            # else it returns, as the result of a statement, is of no interest.
            raise EffectMisuse(
                f"the function of effects {self.effect} yields or returns {type(made).__name__}; only that of "
                "TopicEffects gives outputs: make the effect with the last argument, and return nothing"
            )
        return cast("Awaitable[None] | None", made)


def _checked_dead_letters(topic: TopicName, subscription: str, named: str | None, max_attempts: int | None) -> str:
    """The full name, or empty. Raises InvalidArgument."""
    if named is None:
        return ""
    if max_attempts is None:
        raise InvalidArgument("dead_letter_topic needs max_attempts: 1 or more", field="dead_letter_topic")
    return str(dead_letter_topic(topic, subscription, named))


def _check_store(effects: object) -> None:
    """Raises InvalidArgument."""
    is_store = isinstance(effects, StoreInCluster) or hasattr(effects, "store_id")
    if not is_store or isinstance(effects, type):
        name = effects.__name__ if isinstance(effects, type) else type(effects).__name__
        raise InvalidArgument(f"effects must be a store, such as SqlEffects(engine), not {name}", field="effects")


def process(
    topic: str,
    *,
    subscription: str,
    effects: EffectsStore[ConnectionT] | StoreInCluster[ConnectionT],
    effect: str | None = None,
    type: OrderedTypeName = "failover",  # noqa: A002  # the name that users know from subscribe
    start: Place = EARLIEST,
    batch: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    concurrency: int = 1,
    max_attempts: int | None = None,
    dead_letter_topic: str | None = None,
    on_corrupt: OnCorruptName = "raise",
    on_encrypted: OnEncryptedName = "raise",
) -> Callable[[EffectFunction], Process[ConnectionT]]:
    """Make a function whose writes to one store happen once for each message.

        @oncelog.process("orders", subscription="billing", effects=SqlEffects(engine))
        def book(message, connection):
            connection.execute(insert(invoices).values(order=message.key, ...))

    The function gets a message, or with `batch` a sequence of up to so many, and a connection of the store with an open
    transaction, which it must neither commit nor roll back. With TopicEffects it gets a message alone, and yields
    outputs. It may run again for the same message, after a crash or an
    error; the writes of one run are committed. Only the store is covered: a mail may be sent twice.

    Args:
        topic: as in `subscribe`; of a partitioned topic all partitions.
        subscription: is created if it is missing, and belongs to this store and effect from then on.
        effects: the store.
        effect: the name of the effects in the store; None: the subscription's name. It keeps its position if the
            subscription is deleted and created again.
        type: "failover": further instances of the program wait until they are needed. "exclusive": they are refused.
        start: where the subscription begins if it is created now.
        batch: messages in one transaction, 1 to 10,000. After an error they run one by one. With TopicEffects: messages
            whose outputs are under way at once, 1,000 if it is not given.
        batch_bytes: bytes of the values in one transaction; a larger message is alone.
        concurrency: how many partitions run the function at the same time.
        max_attempts: after so many runs of the function that raised, a message is given up: it goes to the dead-letter
            topic and has no effect. So does a message in whose work so many processes ended, and one more. None: it is
            tried for ever, and nothing behind it in its partition is processed.
        dead_letter_topic: None: a name derived from topic and subscription. Only with max_attempts.
        on_corrupt: "raise": a message that cannot be read ends the process with an error. "skip": it has no effect.
        on_encrypted: as in `create_reader`: "raise" ends the process at a message that a client of Pulsar has
            encrypted. "pass": the value of such a message is an EncryptedMessage.

    Raises InvalidName, InvalidArgument. Also for effects that are no store, and for a function that takes other
    arguments, if that can be known.
    """

    def made(function: EffectFunction) -> Process[ConnectionT]:
        return Process(
            function, topic, subscription=subscription, effects=effects, effect=effect, type=type, start=start,
            batch=batch, batch_bytes=batch_bytes, concurrency=concurrency, max_attempts=max_attempts,
            dead_letter_topic=dead_letter_topic, on_corrupt=on_corrupt, on_encrypted=on_encrypted,
        )  # fmt: skip

    return made


async def run_processes(client: AsyncClient, processes: Sequence[Process[Any]]) -> None:
    """Run processes until one of them fails or this is cancelled. Raises the error of the first one that fails."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in processes:
                group.create_task(each.run(client))
    except BaseExceptionGroup as errors:
        raise next(leaves_of(errors)) from None
