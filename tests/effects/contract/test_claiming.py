"""The claim of a store, while messages come to the log."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client.client import AsyncClient
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import StoreAhead
from oncelog.core.errors import ConsumerFenced, StaleSeekEpoch
from oncelog.core.ids import Generation
from oncelog_effects.claiming import ClaimAgain, Claiming
from oncelog_effects.consumer import EffectsConsumer
from oncelog_effects.core.effects.ordered import found_at
from oncelog_effects.store import EffectsStore
from tests.core.delivery.bound_log import LOG, STORE
from tests.effects.contract.positions import NAMES, SOURCE
from tests.effects.core.effects.test_ordered import ROW

pytestmark = pytest.mark.asyncio


class Log:
    """What the owner of the source answers."""

    def __init__(self) -> None:
        self.effects = LOG
        #: of the consumer's grant, as the consumer knows it
        self.generation = LOG.generation
        self.refuses: Exception = AssertionError("nothing is bound")
        self.topic_partition = SimpleNamespace(topic_id=SOURCE.topic_id, partition=SOURCE.partition)

    async def ask_effects(self, _: int) -> SubscriptionEffects:
        return self.effects

    async def rewind(self, _seek_epoch: int, _generation: int, _ranges: Any) -> None:
        raise AssertionError("nothing was lost")

    async def bind_effects(self, _seek_epoch: int, _generation: int) -> None:
        raise self.refuses


class Mirrored:
    """As the store of a mirror: its position is behind all messages of the source that need no copy. come: so many of
    them come to the source between the question to the log and the claim."""

    def __init__(self, log: Log, *, position: int, come: int) -> None:
        self._log = log
        self._position = position
        self._come = come

    async def claim(self, _source: Any, _names: Any, decide: Any) -> Any:
        self._log.effects = replace(self._log.effects, next_index=self._log.effects.next_index + self._come)
        return decide(found_at(self._position, ""))


class TakenOver:
    """Its claim takes so long that the next consumer becomes active, and consumes behind the position."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.claims = 0

    async def claim(self, _source: Any, _names: Any, decide: Any) -> Any:
        self.claims += 1
        row = decide(ROW)
        successor = Generation(self._log.effects.generation + 1)
        consumed = (*LOG.consumed, IndexRange(ROW.position, ROW.position + 9))
        self._log.effects = replace(self._log.effects, generation=successor, consumed=consumed, complete=True)
        return row


async def claim_of(store: Mirrored | TakenOver, log: Log) -> int:
    claiming = Claiming(cast("AsyncClient", None), cast("EffectsStore[Any]", store), SOURCE.effect, NAMES)
    consumer = cast("EffectsConsumer", SimpleNamespace(driver=log))
    return (await claiming.claim(consumer, STORE)).stored.position


async def test_messages_that_come_during_a_claim_are_no_restored_log() -> None:
    """Two mirrors between two topics: each passes what the other one copies, also while it begins."""
    log = Log()
    assert await claim_of(Mirrored(log, position=LOG.next_index + 30, come=30), log) == LOG.next_index + 30


async def test_position_that_the_log_has_not_reached_is_of_a_restored_log() -> None:
    """The control."""
    log = Log()
    with pytest.raises(StoreAhead, match="restored to an older state"):
        await claim_of(Mirrored(log, position=LOG.next_index + 31, come=30), log)


@pytest.mark.parametrize("error", [ConsumerFenced("another consumer is active"), StaleSeekEpoch("it was moved")])
async def test_claim_of_a_consumer_that_is_not_active_any_more_is_repeated(error: Exception) -> None:
    """Two programs begin at once, and the first one is active before the second one is there: it becomes the standby,
    and does not end."""
    log = Log()
    log.effects, log.refuses = replace(LOG, store_id=""), error
    with pytest.raises(ClaimAgain):
        await claim_of(Mirrored(log, position=0, come=0), log)


@pytest.mark.hazard("claim-under-the-grant-of-another")
@pytest.mark.parametrize("generation", [LOG.generation - 1, 0], ids=["not told yet", "told"])
async def test_consumer_that_is_not_active_any_more_claims_nothing(generation: int) -> None:
    """It asked the log before it knew, and the answer names the grant of its successor."""
    log = Log()
    log.generation = Generation(generation)
    store = TakenOver(log)
    with pytest.raises(ClaimAgain):
        await claim_of(store, log)
    assert store.claims == 0


@pytest.mark.hazard("claim-under-the-grant-of-another")
async def test_what_a_successor_has_consumed_is_not_lost() -> None:
    """The log is asked again after the claim, for it has more ranges than one answer holds. The effects of what the
    successor has consumed are in the store, behind the row of this claim."""
    log = Log()
    log.effects = replace(LOG, complete=False)
    with pytest.raises(ClaimAgain) as error:
        await claim_of(TakenOver(log), log)
    assert type(error.value) is ClaimAgain
