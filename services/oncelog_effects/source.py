"""One source of effects at work: a partition's consumer, and the row of the store that goes with it.

    attach -> wait until this consumer is active -> claim and compare -> apply batches
        anything unknown, or a timer -> claim again
        the store went back behind what this consumer has applied, or an operator has skipped what waits here
            -> attach again

`core.effects.ordered` and `core.effects.giving_up` have the rules and decide; here, and in `claiming` for what comes
before the first batch, they are carried out in their order.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.values.messages import Message
from oncelog.core.errors import EffectsError, OncelogError, SubscriptionGone
from oncelog.runtime.application_errors import SeenErrors, kind_of, reason_of
from oncelog.runtime.tasks import CancelledByNobody, asked_cancellations_only
from oncelog_effects.claiming import AttachAgain, Claim, ClaimAgain, Claiming, Rewound
from oncelog_effects.consumer import EffectsConsumer, size_of
from oncelog_effects.core.effects.giving_up import Care, attempts, given_up, gives_up
from oncelog_effects.core.effects.ordered import Keeps, Received, Step, StoredPosition, next_step, passes_gap, went_back
from oncelog_effects.function_run import (
    ErrorInfo,
    FunctionFailedError,
    called,
    is_retriable,
    of_the_function,
    to_its_end,
)
from oncelog_effects.status import SourceStatus
from oncelog_effects.store import ClaimLost, EffectRefused, EffectsStore, SourceNames

logger = logging.getLogger(__name__)
#: What the next start does. This one does not: what it has received belongs to what is gone, and a topic that was
#: deleted by mistake must not be created again unseen.
_NEXT_START = (
    "this program ends. Start it again, and it begins at once: in a new topic where `start` says, in a new "
    "subscription of the same topic behind what has taken effect"
)

ConnectionT = TypeVar("ConnectionT")
#: Called with the messages of one transaction.
Function = Callable[[Sequence[Message], ConnectionT], Awaitable[None] | None]
#: Opens a consumer for this store id; with a dead-letter topic, or without.
Attach = Callable[[str, bool], Awaitable[EffectsConsumer]]

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 60.0
#: The position in the store is the truth, so acknowledgements may be late; each costs an entry of the ack log.
ACK_EVERY_S = 1.0
ACK_MESSAGES = 10_000
#: An idle consumer compares again: an acknowledgement that was under way at the first time may have landed since
#: (hazard verified-before-a-late-ack).
VERIFY_EVERY_S = 30.0
#: A consumer that is not active for so long after it was attached is a standby.
STANDBY_AFTER_S = 1.0
#: How often the end of the topic is asked for, for reports.
LAG_EVERY_S = 10.0
#: How soon a pause ends when an operator has skipped the message that fails. The owner answers from memory.
SKIP_NOTICED_S = 3.0


class Limits(NamedTuple):
    """messages, bytes: of one transaction; a message that is larger is alone. attempts: before a message is given up;
    None: it is not. turns: shared by the sources that do not work at the same time."""

    messages: int
    bytes: int
    attempts: int | None
    turns: AbstractAsyncContextManager[None]


class EffectsSource(Generic[ConnectionT]):
    """Of one topic without partitions, or one partition. Ordered: exclusive or failover."""

    def __init__(
        self,
        client: AsyncClient,
        attach: Attach,
        store: EffectsStore[ConnectionT],
        function: Function[ConnectionT],
        limits: Limits,
        *,
        topic: str,
        subscription: str,
        effect: str,
    ) -> None:
        self.status = SourceStatus(topic, effect)
        self._attach = attach
        self._store = store
        self._function = function
        self._limits = limits
        self._effect = effect
        self._topic = topic
        names = SourceNames(topic, subscription, network_of(client).lookup.cluster_id)
        self._claiming = Claiming(client, store, effect, names, self.status)
        self._consumer: EffectsConsumer | None = None
        #: that the consumer was attached with
        self._store_id = ""
        #: whether the consumer needs a dead-letter topic
        self._dead_letters = limits.attempts is not None
        #: the newest claim, with what was applied since; None: nothing was claimed by this attachment
        self._claim: Claim | None = None
        #: received and not applied
        self._waiting: list[Message] = []
        self._care = Care(limits.messages, limits.attempts)
        #: the message whose function has failed, and how often; why it is given up
        self._failed: tuple[int, int] = (-1, 0)
        self._reason = ""
        self._seen = SeenErrors()
        #: what an operator can do about a message whose function fails
        self._skip = f"oncelog admin subscriptions skip {topic} {subscription} --count 1"
        #: below which everything is in the store and not all is acknowledged, of how many messages, and since when
        self._unacked: int | None = None
        self._unacked_count = 0
        self._acked_at = 0.0

    @property
    def _attached(self) -> EffectsConsumer:
        assert self._consumer is not None
        return self._consumer

    @property
    def _claimed(self) -> Claim:
        assert self._claim is not None
        return self._claim

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever. Raises what no repetition helps against. When it is cancelled, what was applied is acknowledged."""
        pause_s = PAUSE_S_MIN
        try:
            while True:
                position = self.status.position
                try:
                    await asked_cancellations_only(self._round(), what="the work on the topic")
                except (OncelogError, FunctionFailedError, CancelledByNobody) as error:
                    self._refused(error)
                    if isinstance(error, SubscriptionGone):
                        what = error.message.partition(": ")[0]
                        raise SubscriptionGone(f"{self._effect} of {self._topic}: {what}; {_NEXT_START}") from error
                    if isinstance(error, OncelogError) and not error.retriable:
                        raise
                    pause_s = PAUSE_S_MIN if self.status.position > position else min(2 * pause_s, PAUSE_S_MAX)
                    self._report(error, pause_s)
                    await self._pause(pause_s)
        finally:
            await self._detach()

    async def _pause(self, pause_s: float) -> None:
        """Before the next try; it ends early when the message that fails was skipped. A skip begins with the first
        message that is not acknowledged, so what has taken effect is acknowledged before."""
        if self._consumer is not None:
            self._acknowledge(self._consumer)
        with suppress(TimeoutError, OncelogError):  # what keeps the log from answering is met by the next try
            async with asyncio.timeout(pause_s):
                while True:
                    await asyncio.sleep(SKIP_NOTICED_S)
                    stuck = self.status.stuck
                    if stuck is not None and self._consumer is not None and await self._look() > stuck:
                        return

    async def _look(self) -> int:
        """Ask the log where the topic ends, for reports. Returns below which index everything is acknowledged."""
        effects = await self._attached.driver.ask_effects(self.status.position)
        self.status.next_index = effects.next_index
        return effects.mark_delete

    async def _round(self) -> None:
        """Claim, and work until something is unknown. Raises the errors of log and store, and FunctionFailedError."""
        try:
            await self._begin()
            await self._work()
        except (ClaimAgain, ClaimLost) as error:
            if isinstance(error, Rewound):
                self.status.rewound += error.messages
                self._forget()
        except AttachAgain:
            await self._detach()

    def _refused(self, error: Exception) -> None:
        if isinstance(error, OncelogError):
            refusals, name = self.status.refusals, type(error).__name__
            refusals[name] = refusals.get(name, 0) + 1

    def _report(self, error: OncelogError | FunctionFailedError | CancelledByNobody, pause_s: float) -> None:
        failed = error.error if isinstance(error, FunctionFailedError) else error
        self.status.trouble = reason_of(failed)
        logger.warning(
            "%s of %s stands at index %d and is tried again in %.1f s%s: %s",
            self._effect, self._topic, self.status.position, pause_s,
            self._until() if isinstance(error, FunctionFailedError) else "", self.status.trouble,
            exc_info=self._new_traceback(failed) if isinstance(error, FunctionFailedError) else None,
        )  # fmt: skip

    def _until(self) -> str:
        """What else ends the attempts of the message."""
        if self._limits.attempts is None:
            return f" (without max_attempts for ever; to leave it out: `{self._skip}`)"
        return f" (until max_attempts={self._limits.attempts} gives the message up)"

    def _new_traceback(self, error: BaseException) -> ErrorInfo | None:
        """Of the function, for the log, if none of the same kind was logged before."""
        return of_the_function(error) if self._seen.is_new(kind_of(error), time.monotonic()) else None

    def _recovered(self) -> None:
        """Log or store have answered. A message whose function fails stays the trouble until it has taken effect."""
        if self.status.stuck is None:
            self.status.trouble = ""

    async def _begin(self) -> None:
        if self._consumer is None or self._consumer.failure is not None:
            self._store_id = await self._known_store()
            self._consumer, self._claim = await self._attach(self._store_id, self._dead_letters), None
            self._care.attached()
            self._recovered()
        self.status.active = False
        await self._wait_until_active()
        self.status.active = True
        if await self._known_store() != self._store_id:
            raise AttachAgain  # a standby waits for long: an output was made anew (hazard recreated-output)
        await self._claim_store(self._store_id)

    async def _known_store(self) -> str:
        self.status.began_at = time.time()
        try:
            return await self._store.store_id()
        finally:
            self.status.began_at = 0.0

    async def _wait_until_active(self) -> None:
        what, waits = f"{self._effect} of {self._topic}", False

        def tell() -> None:
            nonlocal waits
            waits = True
            logger.info("standby: another process is active for %s; this one waits, and takes over when it ends", what)

        notice = asyncio.get_running_loop().call_later(STANDBY_AFTER_S, tell)
        try:
            await self._attached.until_active()
        finally:
            notice.cancel()
        if waits:
            logger.info("active: this process has taken over %s", what)

    async def _claim_store(self, store_id: str) -> None:
        consumer, before = self._attached, self._claim
        self._acknowledge(consumer)
        await consumer.all_settled()
        claim = await self._claiming.claim(consumer, store_id)
        stored = claim.stored
        self.status.claims += 1
        self.status.position, self.status.next_index = max(stored.position, claim.mark_delete), claim.next_index
        self._recovered()
        if went_back(None if before is None else before.stored, stored):
            raise AttachAgain
        if self._waiting and self._waiting[0].index < claim.mark_delete:
            what = f"{self._effect} of {self._topic}"
            logger.info("%s goes on at index %d, behind what was skipped or has expired", what, claim.mark_delete)
            raise AttachAgain
        self._claim = claim
        if stored.pending_dead is not None:
            await self._settle(stored.pending_dead)

    async def _detach(self) -> None:
        consumer, self._consumer = self._consumer, None
        self.status.active = False
        if consumer is not None:
            self._acknowledge(consumer)
            await consumer.close()
        self._forget()

    def _forget(self) -> None:
        self._claim = None
        self._waiting.clear()
        self.status.stuck, self.status.waiting_publish_ms = None, 0

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        verify_at, lag_at = loop.time() + VERIFY_EVERY_S, loop.time()
        while True:
            await self._receive(verify_at)
            if await self._pass_unread():
                pass
            elif self._waiting:
                await self._handle(self._next_batch())
            elif loop.time() >= verify_at:
                raise ClaimAgain
            if self._unacked is None:
                self._acked_at = loop.time()
            elif loop.time() - self._acked_at >= ACK_EVERY_S or self._unacked_count >= ACK_MESSAGES:
                self._acked_at = loop.time()
                self._acknowledge(self._attached)
            if loop.time() >= lag_at:
                lag_at = loop.time() + LAG_EVERY_S
                await self._look()

    async def _receive(self, until: float) -> None:
        """Wait for messages. Raises ClaimAgain under another grant, or after a seek."""
        if not self._waiting and not self._attached.unread:
            if self._unacked is not None:
                until = min(until, self._acked_at + ACK_EVERY_S)
            count = self._care.taken_at_once(self._claimed.stored.position)
            try:
                async with asyncio.timeout_at(until):
                    self._waiting = await self._attached.received(count)
            except TimeoutError:
                pass
            for message in self._waiting[-1:]:
                self._care.received(message.delivery_count, self._claimed.stored.position)
                self.status.next_index = max(self.status.next_index, message.index + 1)
        stored, seek_epoch = self._claimed.stored, self._claimed.seek_epoch
        match next_step(self._first(), stored, seek_epoch, self._attached.driver.generation):
            case Step.DROP:
                self._waiting = [each for each in self._waiting if not self._is_void(each)]
                raise ClaimAgain
            case Step.CLAIM:
                raise ClaimAgain
            case Step.ACKNOWLEDGE:
                known = [message for message in self._waiting if message.index < stored.position]
                self.status.filtered += len(known)
                self._waiting = self._waiting[len(known) :]
                self._unack(known[-1].index + 1, len(known))
                if self._waiting and self._waiting[0].index > stored.position and not self._unread_before_waiting():
                    await self._check_gap(self._waiting[0].index)
            case Step.CHECK_GAP:
                if not self._unread_before_waiting():
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
        return is_void or delivery.seek_epoch < self._claimed.seek_epoch

    def _unread_before_waiting(self) -> bool:
        unread = self._attached.unread
        return bool(unread) and (not self._waiting or unread[0].first < self._waiting[0].index)

    async def _check_gap(self, index: int) -> None:
        """Of the messages between the position and the next one (hazard gap-passed-over)."""
        consumer = self._attached
        self._acknowledge(consumer)
        await consumer.all_settled()
        if not passes_gap(index, await consumer.driver.ask_effects(index)):
            raise AttachAgain

    def _next_batch(self) -> Sequence[Message]:
        """Consecutive messages within the limits; at least one."""
        waiting, limits = self._waiting, self._limits
        size = size_of(waiting[0])
        for number in range(1, min(len(waiting), limits.messages)):
            size += size_of(waiting[number])
            if size > limits.bytes or waiting[number].index != waiting[number - 1].index + 1:
                return waiting[:number]
        return waiting[: limits.messages]

    # --- applying -----------------------------------------------------------------------------------------------------

    async def _handle(self, messages: Sequence[Message]) -> None:
        """Apply, or give up. Raises ClaimLost, the errors of the store; FunctionFailedError, after the messages were
        tried one by one."""
        first, limit = messages[0], self._limits.attempts
        self.status.waiting_publish_ms = first.publish_time_ms
        # A store without a position does not tell what took effect in a process that ended from what killed it.
        delivery_count = 1 if self._claimed.stored.keeps is Keeps.NOTHING else first.delivery_count
        if gives_up(delivery_count, self._failures(first), limit):
            count = attempts(delivery_count, self._failures(first))
            await self._give_up(first, f"its function began {count} times in processes that ended")
            return
        if self._care.is_needed(self._claimed.stored.position):
            # Answered behind the report that the message was begun: the process may be killed by it.
            await self._attached.driver.ask_effects(first.index)
        try:
            await self._apply(messages)
        except (FunctionFailedError, EffectRefused) as failed:
            error = failed.error if isinstance(failed, FunctionFailedError) else failed
            if isinstance(error, EffectsError) or is_retriable(error):
                raise error from error.__cause__
            if len(messages) > 1:
                for message in messages:
                    await self._handle([message])
                return
            self._failed = first.index, self._failures(first) + 1
            self.status.stuck = first.index
            with suppress(Exception):  # an error may take no attributes
                error.add_note(f"while message {first.message_id} of {self._topic} (index {first.index}) took effect")
            if gives_up(delivery_count, self._failures(first), limit):
                await self._give_up(first, reason_of(error), self._new_traceback(error))
                return
            raise FunctionFailedError(error) from error

    def _failures(self, message: Message) -> int:
        index, count = self._failed
        return count if index == message.index else 0

    async def _apply(self, messages: Sequence[Message]) -> None:
        """Raises FunctionFailedError, and the errors of the store."""
        claim, last, status = self._claimed, messages[-1], self.status
        following = replace(claim.stored, position=last.index + 1, last_message=str(last.message_id))

        def run(connection: ConnectionT) -> Awaitable[None] | None:
            status.attempts += 1
            return called(lambda: self._function(messages, connection))

        async with self._limits.turns:
            began, status.began_at = time.monotonic(), time.time()
            try:
                cancelled = await to_its_end(self._store.apply(claim.source, claim.stored, following, run))
            finally:
                status.began_at = 0.0
        status.transactions += 1
        status.transaction_s += time.monotonic() - began
        status.applied += len(messages)
        status.applied_at = time.time()
        self._passed(following, len(messages), last)
        self._unack(last.index + 1, len(messages))
        if cancelled is not None:
            raise cancelled

    def _passed(self, following: StoredPosition, count: int, last: Message | None) -> None:
        """The store has this row. count: of the waiting messages, those below its position."""
        self._claim = self._claimed._replace(stored=following)
        self._waiting = self._waiting[count:]
        status = self.status
        status.position, status.trouble, status.stuck = following.position, "", None
        status.waiting_publish_ms = 0
        if last is not None:
            status.applied_publish_ms = last.publish_time_ms

    # --- giving up ----------------------------------------------------------------------------------------------------

    async def _give_up(self, message: Message, reason: str, traceback: ErrorInfo | None = None) -> None:
        """The store decides first (hazard dead-letter-beside-the-store)."""
        claim = self._claimed
        logger.error(
            "%s gives up message %s of %s (index %d): %s",
            self._effect, message.message_id, self._topic, message.index, reason, exc_info=traceback,
        )  # fmt: skip
        following = given_up(claim.stored, message.index, str(message.message_id))
        self._reason = reason
        await self._store.apply(claim.source, claim.stored, following, None)
        self._passed(following, 1, message)
        self.status.dead_letters += 1
        await self._settle(message.index)

    async def _settle(self, index: int) -> None:
        """Have the dead letter made that the store owes."""
        self._dead_letters = True
        reason = self._reason or "the process that gave it up has ended"
        self.status.trouble = f"message {index} was given up, and waits until its dead letter is stored"
        self._claim = await self._claiming.settle(self._attached, self._claimed, reason)
        self._reason = self.status.trouble = ""
        self._unack(index + 1, 1)

    async def _pass_unread(self) -> bool:
        """Messages that cannot be read: the position passes them in the store, and then they are acknowledged. An
        acknowledgement alone would count as an effect that the store has lost (hazard corrupt-message-rewound)."""
        if not self._unread_before_waiting():
            return False
        claim, (first, last) = self._claimed, self._attached.unread[0]
        if last >= claim.stored.position:
            if first > claim.stored.position:
                await self._check_gap(first)
            following = replace(claim.stored, position=last + 1, last_message="")
            await self._store.apply(claim.source, claim.stored, following, None)
            self.status.skipped += last - max(first, claim.stored.position) + 1
            self._passed(following, 0, None)
        del self._attached.unread[0]
        self._unack(last + 1, 1)
        return True

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def _unack(self, below: int, count: int) -> None:
        """Everything below this index is in the store."""
        self._unacked, self._unacked_count = below, self._unacked_count + count

    def _acknowledge(self, consumer: EffectsConsumer) -> None:
        """Not waited for: what is not acknowledged is delivered again and filtered."""
        if self._unacked is not None and self._claim is not None and consumer.failure is None:
            consumer.ack_below(self._claim.seek_epoch, self._claim.generation, self._unacked)
        self._unacked, self._unacked_count = None, 0
