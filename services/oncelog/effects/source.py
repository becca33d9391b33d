"""One source of effects at work: a partition's consumer, and the row of the store that goes with it.

    attach -> wait until this consumer is active -> claim and compare -> apply batches
        anything unknown, or a timer -> claim again
        the store went back behind what this consumer has applied -> attach again

`core.effects.ordered` has the rules and decides; here they are carried out in their order.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.values.messages import Message
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effects.errors import StoreDiverged
from oncelog.core.effects.ordered import (
    Outranked,
    Received,
    Source,
    Step,
    StoredPosition,
    claimed,
    lost,
    next_step,
    outranked_by,
    passes_gap,
    went_back,
)
from oncelog.core.errors import OncelogError, StoreUnavailable
from oncelog.core.formats.message_id import Index
from oncelog.core.ids import SeekEpoch
from oncelog.effects.consumer import EffectsConsumer
from oncelog.effects.store import ClaimLost, EffectsStore, SourceNames

logger = logging.getLogger(__name__)

ConnectionT = TypeVar("ConnectionT")
#: Called with the messages of one transaction.
Function = Callable[[Sequence[Message], ConnectionT], Awaitable[None] | None]

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 60.0
#: The position in the store is the truth, so acknowledgements may be late; each costs an entry of the ack log.
ACK_EVERY_S = 1.0
ACK_MESSAGES = 10_000
#: An idle consumer compares again: an acknowledgement that was under way at the first time may have landed since
#: (hazard verified-before-a-late-ack).
VERIFY_EVERY_S = 30.0


@dataclass(slots=True)
class SourceStatus:
    """position: -1 before the first claim. trouble: why nothing takes effect now; empty: nothing is known."""

    topic: str
    active: bool = False
    position: int = -1
    applied: int = 0
    filtered: int = 0
    rewound: int = 0
    claims: int = 0
    trouble: str = ""


class _ClaimAgain(Exception):
    """What is known of log and store is void."""


class _AttachAgain(Exception):
    """What this consumer has received is of no use: the owner is to deliver everything that is not acknowledged."""


class _FunctionFailedError(Exception):
    """The application's function raised."""


class EffectsSource(Generic[ConnectionT]):
    """Of one topic without partitions, or one partition. Ordered: exclusive or failover."""

    def __init__(
        self,
        client: AsyncClient,
        attach: Callable[[str], Awaitable[EffectsConsumer]],
        store: EffectsStore[ConnectionT],
        function: Function[ConnectionT],
        *,
        topic: str,
        subscription: str,
        effect: str,
        batch: int,
    ) -> None:
        """attach: opens a consumer for this store id."""
        self.status = SourceStatus(topic)
        self._client = client
        self._attach = attach
        self._store = store
        self._function = function
        self._batch = batch
        self._effect = effect
        self._names = SourceNames(topic, subscription, network_of(client).lookup.cluster_id)
        self._consumer: EffectsConsumer | None = None
        #: of the newest claim, and of what was applied since; None: nothing was claimed by this attachment
        self._stored: StoredPosition | None = None
        #: that the newest claim knows
        self._seek_epoch = SeekEpoch(0)
        #: received and not applied
        self._waiting: list[Message] = []
        #: the last message that is in the store and not acknowledged, how many there are, and since when
        self._unacked: Message | None = None
        self._unacked_count = 0
        self._acked_at = 0.0

    @property
    def _attached(self) -> EffectsConsumer:
        assert self._consumer is not None
        return self._consumer

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever. Raises what no repetition helps against. When it is cancelled, what was applied is acknowledged."""
        pause_s = PAUSE_S_MIN
        try:
            while True:
                applied = self.status.applied
                try:
                    await self._begin()
                    await self._work()
                except (_ClaimAgain, ClaimLost):
                    continue
                except _AttachAgain:
                    await self._detach()
                except (OncelogError, _FunctionFailedError) as error:
                    failed = error.__cause__ if isinstance(error, _FunctionFailedError) else error
                    if isinstance(error, OncelogError) and not error.retriable:
                        raise
                    pause_s = PAUSE_S_MIN if self.status.applied > applied else min(2 * pause_s, PAUSE_S_MAX)
                    self._report(failed, pause_s)
                    await asyncio.sleep(pause_s)
        finally:
            await self._detach()

    def _report(self, error: BaseException | None, pause_s: float) -> None:
        self.status.trouble = f"{type(error).__name__}: {error}"
        logger.warning(
            "%s of %s stands at index %d and is tried again in %.1f s: %s",
            self._effect, self._names.topic, self.status.position, pause_s, self.status.trouble,
        )  # fmt: skip

    async def _begin(self) -> None:
        store_id = await self._store.store_id()
        if self._consumer is None or self._consumer.failure is not None:
            self._consumer, self._stored = await self._attach(store_id), None
        self.status.active = False
        await self._attached.until_active()
        self.status.active = True
        await self._claim(store_id)

    async def _detach(self) -> None:
        consumer, self._consumer = self._consumer, None
        self.status.active = False
        if consumer is not None:
            if consumer.failure is None:
                self._acknowledge(consumer)
            await consumer.close()
        self._forget()

    def _forget(self) -> None:
        self._stored = None
        self._waiting.clear()

    # --- claim and compare --------------------------------------------------------------------------------------------

    async def _claim(self, store_id: str) -> None:
        consumer, before = self._attached, self._stored
        self._acknowledge(consumer)
        await consumer.all_settled()
        effects = await consumer.driver.ask_effects(0)
        nonce = uuid.uuid4().hex
        source = Source(
            self._effect, consumer.driver.topic_partition.topic_id, consumer.driver.topic_partition.partition
        )
        try:
            stored = await self._store.claim(
                source, self._names, lambda found: claimed(found, effects, store_id, nonce)
            )
        except Outranked as error:
            raise outranked_by(error.stored, await consumer.driver.ask_effects(0)) from None
        self.status.claims += 1
        self.status.position = stored.position
        if not effects.store_id:
            await consumer.driver.bind_effects(effects.seek_epoch, effects.generation)
        await self._compare(consumer, stored, effects)
        if went_back(before, stored):
            raise _AttachAgain
        self._source, self._stored, self._seek_epoch = source, stored, effects.seek_epoch

    async def _compare(self, consumer: EffectsConsumer, stored: StoredPosition, effects: SubscriptionEffects) -> None:
        if not effects.complete:
            # The claim keeps every other consumer from applying: what the log has now is in the store, or lost.
            effects = await consumer.driver.ask_effects(stored.position)
        missing = lost(stored, effects)
        if missing:
            count = sum(last - first + 1 for first, last in missing)
            logger.warning(
                "%s: the store has lost the effects of %d messages of %s from index %d on; they are delivered again",
                self._effect, count, self._names.topic, missing[0].first,
            )  # fmt: skip
            await consumer.driver.rewind(effects.seek_epoch, effects.generation, missing)
            self.status.rewound += count
            self._forget()
            raise _ClaimAgain
        if stored.last_message and stored.position > effects.first_index:
            await self._check_last(stored)

    async def _check_last(self, stored: StoredPosition) -> None:
        """The message below the position is the one whose effect is in the store."""
        async with await self._client.create_reader(self._names.topic, start=Index(stored.position - 1)) as reader:
            message = await anext(reader)
        if message.index == stored.position - 1 and str(message.message_id) != stored.last_message:
            raise StoreDiverged(
                f"the store has the effect of message {stored.last_message} below index {stored.position}, and "
                f"{self._names.topic} has message {message.message_id} there: the log or the store was restored from a "
                "backup of another time. Restore both to one time; or say below which index the store has the effects "
                "of the log's messages, with `oncelog effects adopt --position`"
            )

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        verify_at = loop.time() + VERIFY_EVERY_S
        while True:
            await self._receive(verify_at)
            if self._waiting:
                await self._apply(_consecutive(self._waiting[: self._batch]))
            elif loop.time() >= verify_at:
                raise _ClaimAgain
            if self._unacked is None:
                self._acked_at = loop.time()
            elif loop.time() - self._acked_at >= ACK_EVERY_S or self._unacked_count >= ACK_MESSAGES:
                self._acked_at = loop.time()
                self._acknowledge(self._attached)

    async def _receive(self, until: float) -> None:
        """Wait for messages. Raises _ClaimAgain under another grant, or after a seek."""
        if not self._waiting:
            if self._unacked is not None:
                until = min(until, self._acked_at + ACK_EVERY_S)
            try:
                async with asyncio.timeout_at(until):
                    self._waiting = list(await self._attached.receive_batch(self._batch))
            except TimeoutError:
                pass
        stored = self._stored
        assert stored is not None
        match next_step(self._first(), stored, self._seek_epoch, self._attached.driver.generation):
            case Step.DROP:
                self._waiting = [each for each in self._waiting if not self._is_void(each)]
                raise _ClaimAgain
            case Step.CLAIM:
                raise _ClaimAgain
            case Step.ACKNOWLEDGE:
                known = [message for message in self._waiting if message.index < stored.position]
                self.status.filtered += len(known)
                self._unacked, self._waiting = known[-1], self._waiting[len(known) :]
                if self._waiting and self._waiting[0].index > stored.position:
                    await self._check_gap(self._waiting[0].index)
            case Step.CHECK_GAP:
                await self._check_gap(self._waiting[0].index)
            case Step.APPLY:
                pass

    def _first(self) -> Received | None:
        if not self._waiting:
            return None
        first = self._waiting[0]
        return Received(first.index, first.delivery.seek_epoch, self._is_void(first))

    def _is_void(self, message: Message) -> bool:
        delivery = message.delivery
        is_void = self._attached.driver.is_void(delivery.seek_epoch, delivery.generation)
        return is_void or delivery.seek_epoch < self._seek_epoch

    async def _check_gap(self, index: int) -> None:
        """Of the messages between the position and the next one (hazard gap-passed-over)."""
        consumer = self._attached
        self._acknowledge(consumer)
        await consumer.all_settled()
        if not passes_gap(index, await consumer.driver.ask_effects(index)):
            raise _AttachAgain

    async def _apply(self, messages: Sequence[Message]) -> None:
        """Raises ClaimLost, StoreUnavailable; _FunctionFailedError, after the messages were tried one by one."""
        assert self._stored is not None
        last = messages[-1]
        following = replace(self._stored, position=last.index + 1, last_message=str(last.message_id))
        try:
            await self._store.apply(
                self._source, self._stored, following, lambda connection: self._function(messages, connection)
            )
        except (StoreUnavailable, ClaimLost, OncelogError):
            raise
        except Exception as error:
            if len(messages) > 1:
                for message in messages:
                    await self._apply([message])
                return
            error.add_note(f"while message {last.message_id} of {self._names.topic} (index {last.index}) took effect")
            raise _FunctionFailedError from error
        self._stored, self.status.position, self.status.trouble = following, following.position, ""
        self.status.applied += len(messages)
        self._waiting = self._waiting[len(messages) :]
        self._unacked, self._unacked_count = last, self._unacked_count + len(messages)

    def _acknowledge(self, consumer: EffectsConsumer) -> None:
        """Not waited for: what is not acknowledged is delivered again and filtered."""
        if self._unacked is not None:
            consumer.ack_below(self._unacked)
            self._unacked, self._unacked_count = None, 0


def _consecutive(messages: Sequence[Message]) -> Sequence[Message]:
    """Those before the first gap; at least one."""
    for number in range(1, len(messages)):
        if messages[number].index != messages[number - 1].index + 1:
            return messages[:number]
    return messages
