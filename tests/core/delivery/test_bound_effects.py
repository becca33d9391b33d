"""Consumers whose messages take effect in a store: attaching, binding, asking what was consumed, rewinding."""

from typing import Any

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AnswerAdmin, ConsumerDetached
from oncelog.core.delivery.store_binding.bound_effects import EFFECTS_RANGES_MAX
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    EffectsAsked,
    RebindRequested,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import (
    Conflict,
    ConsumerFenced,
    DeadlineExceeded,
    InvalidArgument,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    StaleSeekEpoch,
    StoreMismatch,
)
from oncelog.core.ids import Generation, SeekEpoch
from tests.core.delivery.subscription_world import FAILOVER, SHARED, Client, World

STORE, OTHER_STORE = "5a" * 16, "0b" * 16
BOUND: dict[str, Any] = {"store_id": STORE, "effect": "invoices"}


class Effects(World):
    """Ten messages."""

    def __init__(self) -> None:
        super().__init__(messages=[5, 5])

    def bind(
        self, client: Client, *, forgotten_below: int = 0, generation: int | None = None, written: bool = True
    ) -> OncelogError | str | None:
        self._calls += 1
        given = Generation(client.generation if generation is None else generation)
        self.post(BindRequested(client.number, self._calls, SeekEpoch(client.seek_epoch), given, forgotten_below))
        if written:
            self.write()
        return self.answer(self._calls)

    def rewind(
        self, client: Client, *ranges: tuple[int, int], epoch: int | None = None, written: bool = True
    ) -> OncelogError | str | None:
        self._calls += 1
        asked = SeekEpoch(client.seek_epoch if epoch is None else epoch)
        lost = tuple(IndexRange(*each) for each in ranges)
        self.post(RewindRequested(client.number, self._calls, asked, Generation(client.generation), lost))
        if written:
            self.write()
        return self.answer(self._calls)

    def rebind(self, store_id: str = OTHER_STORE, *, written: bool = True) -> OncelogError | str | None:
        self.post(RebindRequested(1, self.number, store_id))
        if written:
            self.write()
        return next((answer.error for answer in self.other(AnswerAdmin)), "waits")

    def ask(self, client: Client, from_index: int = 0) -> SubscriptionEffects:
        self.post(EffectsAsked(client.number, 1, from_index))
        (answer,) = self.other(AnswerEffects)
        return answer.effects


def bound(**settings: Any) -> tuple[Effects, Client]:
    world = Effects()
    client = world.subscribe("a", FAILOVER, window=100, **{**BOUND, **settings})
    assert world.bind(client) is None
    client.take()
    return world, client


def test_what_the_log_knows_before_and_behind_the_binding() -> None:
    world = Effects()
    client = world.subscribe("a", FAILOVER, window=100, **BOUND)
    asked = world.ask(client)
    assert (asked.store_id, asked.effect, asked.consumed, asked.complete) == ("", "", (), True)
    assert world.bind(client) is None
    world.ack(client, 0, 1, 4)
    asked = world.ask(client)
    assert (asked.store_id, asked.effect, asked.consumed) == (STORE, "invoices", (IndexRange(0, 1), IndexRange(4, 4)))
    assert (asked.mark_delete, asked.first_index, asked.next_index, asked.generation) == (2, 0, 10, 1)
    assert world.ask(client, 1).consumed == (IndexRange(1, 1), IndexRange(4, 4))
    assert world.ask(client, 5).consumed == ()


@pytest.mark.hazard("consumer-without-effects")
def test_consumer_without_effects_is_refused() -> None:
    """It would acknowledge what no store has: beside bound consumers, alone, and before the subscription is bound."""
    world, client = bound()
    refused = world.subscribe("b", FAILOVER).answer
    assert isinstance(refused, StoreMismatch)
    assert "subscriptions peek" in refused.message
    assert "rebind" not in refused.message  # it would harm the programs that have the store
    world.detach(client, lost=False)
    assert isinstance(world.subscribe("b", FAILOVER).answer, StoreMismatch)
    unbound = Effects()
    unbound.subscribe("a", SHARED, **BOUND)
    assert isinstance(unbound.subscribe("b", SHARED).answer, StoreMismatch)


@pytest.mark.hazard("two-stores-take-turns")
def test_another_store_is_refused() -> None:
    """Also if both ask before one of them is durable, and by the owner after."""
    world, client = bound()
    for other in ({"store_id": OTHER_STORE}, {"effect": "mails"}):
        assert isinstance(world.subscribe("b", FAILOVER, **{**BOUND, **other}).answer, StoreMismatch)
    world.take_over()
    assert isinstance(world.subscribe("b", FAILOVER, **{**BOUND, "store_id": OTHER_STORE}).answer, StoreMismatch)
    again = world.reconnect(client)
    assert isinstance(again.answer, StoreMismatch)  # it does not name its store any more


def test_same_store_may_come_back() -> None:
    world, client = bound()
    world.detach(client)
    assert world.subscribe("b", FAILOVER, **BOUND).generation == 2


@pytest.mark.parametrize(
    "settings", [{"store_id": STORE}, {"effect": "invoices"}, {**BOUND, "max_deliveries": 3}], ids=str
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    assert isinstance(Effects().subscribe("a", FAILOVER, **settings).answer, InvalidArgument)


def test_bad_requests_are_refused() -> None:
    world, client = bound()
    world.ack(client, 0, 1)
    too_many = [(2 * i, 2 * i) for i in range(EFFECTS_RANGES_MAX + 1)]
    assert isinstance(world.bind(client, forgotten_below=3), InvalidArgument)
    assert isinstance(world.rewind(client), InvalidArgument)
    assert isinstance(world.rewind(client, *too_many), InvalidArgument)
    assert isinstance(world.rewind(client, (11, 11)), InvalidArgument)
    assert isinstance(world.rewind(client, (0, 0), epoch=1), NotOwner)
    assert isinstance(world.bind(client, generation=2), NotOwner)
    plain = Effects()
    consumer = plain.subscribe("a", FAILOVER)
    assert isinstance(plain.bind(consumer), InvalidArgument)
    assert isinstance(plain.rewind(consumer, (0, 0)), InvalidArgument)


def test_rewound_messages_are_delivered_again_and_no_others() -> None:
    world, client = bound()
    world.ack(client, 0, 1, 2, 5)
    world.skip(count=1)  # message 3
    assert world.rewind(client, (1, 3)) is None
    assert (client.seek_epoch, client.take()) == (1, [1, 2, 4, 6, 7, 8, 9])
    assert world.acked() == [0, 3, 5]
    assert world.ask(client).consumed == (IndexRange(0, 0), IndexRange(5, 5))
    assert isinstance(world.ack(client, 1, epoch=0), StaleSeekEpoch)
    assert world.ack(client, 1, 2) is None
    assert world.ask(client).consumed == (IndexRange(0, 2), IndexRange(5, 5))


def test_rewind_that_was_not_written_can_be_repeated() -> None:
    world, client = bound()
    world.ack(client, 0)
    assert world.rewind(client, (0, 0), written=False) == "waits"
    world.fail()
    assert isinstance(world.answers[-1].error, ServiceUnavailable)
    assert world.rewind(client, (0, 0)) is None
    assert client.take()[0] == 0


@pytest.mark.hazard("former-consumer-acks")
def test_rewind_behind_another_activation_has_no_effect() -> None:
    """It was asked for before the other consumer became active, and is written behind it."""
    world, client = bound()
    world.ack(client, 0)
    world.subscribe("0", FAILOVER, written=False, priority=-1, **BOUND)
    assert world.rewind(client, (0, 0), written=False) == "waits"
    world.write()
    assert isinstance(world.answers[-1].error, ConsumerFenced)
    assert (world.acked(), world.state.subscriptions[world.number].seek_epoch) == ([0], 0)


def test_binding_again_forgets() -> None:
    """Nothing is written if nothing changes."""
    world, client = bound()
    world.ack(client, 0, 1, 2)
    assert world.bind(client, written=False) is None
    assert world.bind(client, forgotten_below=2) is None
    asked = world.ask(client)
    assert (asked.known_from, asked.forgotten_below, asked.consumed) == (2, 2, (IndexRange(2, 2),))


def test_rewind_waits_for_a_trim_of_its_messages() -> None:
    """A step back and a trim exclude each other; a rewind below the topic's first message is refused."""
    world, client = bound()
    world.ack(client, 0, 1, 6)
    world.topic.trim_began(5)
    assert world.rewind(client, (0, 0), (6, 6)) == "waits"
    world.topic.trim_ended(5)
    world.settle()
    assert isinstance(world.answers[-1].error, InvalidArgument)
    assert world.rewind(client, (6, 6), written=False) == "waits"
    assert world.topic.steps_back_to() == 6
    world.write()
    assert client.seek_epoch == 1


def test_operator_binds_another_store() -> None:
    """What was consumed stays known: the new store is compared with it. The old one is refused from then on."""
    world, client = bound()
    world.ack(client, 0, 1)
    world.detach(client, lost=False)
    assert world.rebind() is None
    assert world.rebind(written=False) is None  # nothing to change
    assert isinstance(world.subscribe("a", FAILOVER, **BOUND).answer, StoreMismatch)
    other = world.subscribe("a", FAILOVER, **{**BOUND, "store_id": OTHER_STORE})
    asked = world.ask(other)
    assert (asked.store_id, asked.effect, asked.consumed) == (OTHER_STORE, "invoices", (IndexRange(0, 1),))


@pytest.mark.hazard("store-changed-under-a-consumer")
def test_store_is_not_changed_under_a_consumer() -> None:
    """Neither of a connected one, nor of one that attaches while the change is being written."""
    world, client = bound()
    assert isinstance(world.rebind(), Conflict)
    world.detach(client, lost=False)
    assert world.rebind(written=False) == "waits"
    assert isinstance(world.subscribe("b", FAILOVER, written=False, **BOUND).answer, ServiceUnavailable)
    assert isinstance(world.rebind(written=False), ServiceUnavailable)
    world.write()
    assert [answer.error for answer in world.other(AnswerAdmin)] == [None]
    again = world.subscribe("b", FAILOVER, **{**BOUND, "store_id": OTHER_STORE})
    assert again.generation == 2


def test_store_of_a_subscription_without_one_is_not_changed() -> None:
    world = Effects()
    world.subscribe("a", FAILOVER)
    assert isinstance(world.rebind(), Conflict)


def test_change_of_the_store_that_was_not_written_can_be_repeated() -> None:
    """Dropped, behind a grant of a consumer that came and went, and at the end of this owner."""
    world, client = bound()
    world.detach(client, lost=False)
    assert world.rebind(written=False) == "waits"
    world.fail()
    assert [type(answer.error) for answer in world.other(AnswerAdmin)] == [ServiceUnavailable]
    brief = world.subscribe("b", FAILOVER, written=False, **BOUND)
    number = next(iter(world.subscription.consumers)).number
    assert brief.answer is None or number
    world.post(ConsumerDetached(number, lost=False))
    assert isinstance(world.rebind(), ServiceUnavailable)
    assert world.rebind(written=False) == "waits"
    world.topic.end(NotOwner("moved"))
    world.settle()
    assert [type(answer.error) for answer in world.other(AnswerAdmin)] == [DeadlineExceeded]
