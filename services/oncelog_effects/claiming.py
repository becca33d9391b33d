"""The claim of a source: what one consumer does before it applies anything.

    own acknowledgements are answered -> ask the log -> claim the store -> bind -> compare -> settle what is owed

`core.effects.ordered` and `core.effects.giving_up` have the rules and decide; here they are carried out in their order.
"""

import asyncio
import logging
import time
import uuid
from typing import Any, NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.core.counted import counted
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import StoreDiverged
from oncelog.core.errors import ConsumerFenced, DeadlineExceeded, StaleSeekEpoch
from oncelog.core.formats.message_id import Index
from oncelog.core.ids import Generation, SeekEpoch
from oncelog_effects.consumer import EffectsConsumer
from oncelog_effects.core.effects.giving_up import settled
from oncelog_effects.core.effects.ordered import (
    Outranked,
    Source,
    StoredPosition,
    claimed,
    is_under_grant,
    lost,
    outranked_by,
    rank_of,
)
from oncelog_effects.status import SourceStatus
from oncelog_effects.store import EffectsStore, SourceNames

logger = logging.getLogger(__name__)

#: How long the owner may take to have a dead letter: it waits for the dead-letter topic.
DEAD_LETTER_S = 30.0


class ClaimAgain(Exception):
    """What is known of log and store is void."""


class AttachAgain(Exception):
    """What this consumer has received is of no use: the owner is to deliver everything that is not acknowledged. Or it
    was attached without a dead-letter topic, and needs one."""


class Rewound(ClaimAgain):
    """The store had lost the effects of so many messages: they are delivered again."""

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self.messages = messages


class Claim(NamedTuple):
    """stored: the row as this claim wrote it. seek_epoch, generation: of the grant under which it was made. next_index:
    where the topic ended then. mark_delete: below which everything was acknowledged then."""

    source: Source
    stored: StoredPosition
    seek_epoch: SeekEpoch
    generation: Generation
    next_index: int
    mark_delete: int


class Claiming:
    """Of one source. status: says since when the store is at work."""

    def __init__(
        self,
        client: AsyncClient,
        store: EffectsStore[Any],
        effect: str,
        names: SourceNames,
        status: SourceStatus | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._effect = effect
        self._names = names
        self._status = status or SourceStatus(names.topic)

    async def claim(self, consumer: EffectsConsumer, store_id: str) -> Claim:
        """Every acknowledgement of the consumer was answered.

        Raises Rewound, the errors of log and store, and ClaimAgain if another consumer has become active meanwhile, or
        the subscription was moved.
        """
        try:
            return await self._claimed(consumer, store_id)
        except (ConsumerFenced, StaleSeekEpoch):
            raise ClaimAgain from None

    async def _claimed(self, consumer: EffectsConsumer, store_id: str) -> Claim:
        driver = consumer.driver
        effects = await driver.ask_effects(0)
        if not is_under_grant(effects, driver.generation):
            raise ClaimAgain
        nonce = uuid.uuid4().hex
        source = Source(self._effect, driver.topic_partition.topic_id, driver.topic_partition.partition)
        self._status.began_at = time.time()
        try:
            stored = await self._store.claim(
                source, self._names, lambda found: claimed(found, effects, store_id, nonce)
            )
        except Outranked as error:
            raise outranked_by(error.stored, await driver.ask_effects(0)) from None
        finally:
            self._status.began_at = 0.0
        if not effects.store_id:
            await driver.bind_effects(effects.seek_epoch, effects.generation)
        await self._compare(consumer, stored, effects)
        return Claim(source, stored, effects.seek_epoch, effects.generation, effects.next_index, effects.mark_delete)

    async def _compare(self, consumer: EffectsConsumer, stored: StoredPosition, effects: SubscriptionEffects) -> None:
        if not effects.complete or stored.position > effects.next_index:
            # The claim keeps every other consumer from applying until one claims with a higher rank, which the log
            # knows by then: what the log has now is in the store, or lost. The position of a mirror passes messages
            # that have come since the question: copies of the other direction.
            effects = await consumer.driver.ask_effects(stored.position)
            if rank_of(effects) != stored.rank:
                raise ClaimAgain
        missing = lost(stored, effects)
        if missing:
            count = sum(last - first + 1 for first, last in missing)
            logger.warning(
                "%s: the store has lost the effects of %s of %s from index %d on; what is missing is delivered again",
                self._effect, counted(count, "message"), self._names.topic, missing[0].first,
            )  # fmt: skip
            await consumer.driver.rewind(effects.seek_epoch, effects.generation, missing)
            raise Rewound(count)
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

    async def settle(self, consumer: EffectsConsumer, claim: Claim, reason: str) -> Claim:
        """Have the dead letter made that the store owes. reason: for the letter; empty: another process knows it.

        Raises ClaimAgain, AttachAgain, DeadlineExceeded while the dead-letter topic does not take it, ClaimLost.
        """
        stored = claim.stored
        index = stored.pending_dead
        assert index is not None
        if not consumer.has_dead_letter_topic:
            raise AttachAgain
        try:
            async with asyncio.timeout(DEAD_LETTER_S):
                await consumer.driver.dead_letter(claim.seek_epoch, claim.generation, index, reason)
        except (ConsumerFenced, StaleSeekEpoch):
            raise ClaimAgain from None
        except TimeoutError:
            raise DeadlineExceeded(
                f"message {index} of {self._names.topic} was given up, and its dead letter could not be stored within "
                f"{DEAD_LETTER_S:.0f} s: look at the dead-letter topic and the log of the topic owner"
            ) from None
        following = settled(stored)
        await self._store.apply(claim.source, stored, following, None)
        return claim._replace(stored=following)
