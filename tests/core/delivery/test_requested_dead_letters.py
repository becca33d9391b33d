"""Dead letters that a store of effects asks for: one for each message, however often and by whom it is asked for."""

from typing import Any

import pytest

from oncelog.core.acks.changes import DeadLettered, IndexRange
from oncelog.core.delivery.attachments import RETURN_WAIT_MS
from oncelog.core.delivery.events import (
    DeadLetterStored,
    DeadLetterTopicResolved,
    HeldMessages,
    PublishDeadLetter,
    ResolveDeadLetterTopic,
)
from oncelog.core.delivery.store_binding.events import REASON_MAX, DeadLetterRequested
from oncelog.core.errors import (
    ConsumerFenced,
    InvalidArgument,
    NotOwner,
    OncelogError,
    ServiceUnavailable,
    StaleSeekEpoch,
)
from oncelog.core.ids import Generation, SeekEpoch, TopicId
from tests.core.delivery.subscription_world import FAILOVER, Client, ranges
from tests.core.delivery.test_bound_effects import BOUND, Effects

DLQ = TopicId("d" * 32)
SETTINGS: dict[str, Any] = {**BOUND, "dead_letter_topic": "dlq"}


class Letters(Effects):
    def __init__(self) -> None:
        super().__init__()
        self.client = self.begin("a")
        assert self.bind(self.client) is None

    def begin(self, name: str, **settings: Any) -> Client:
        client = self.subscribe(name, FAILOVER, window=100, **{**SETTINGS, **settings})
        client.take()
        return client

    def give_up(self, index: int, reason: str = "", client: Client | None = None, epoch: int | None = None) -> int:
        """Returns the request."""
        client = self.client if client is None else client
        self._calls += 1
        asked = SeekEpoch(client.seek_epoch if epoch is None else epoch)
        grant = Generation(client.generation)
        self.post(DeadLetterRequested(client.number, self._calls, asked, grant, index, reason))
        return self._calls

    def refusal(
        self, index: int, reason: str = "", client: Client | None = None, **given: Any
    ) -> OncelogError | str | None:
        return self.answer(self.give_up(index, reason, client, **given))

    def resolve(self) -> None:
        for asked in self.other(ResolveDeadLetterTopic):
            assert asked.topic == "dlq"
            self.post(DeadLetterTopicResolved(asked.number, asked.topic, DLQ))

    def published(self) -> list[tuple[int, int, str]]:
        return [(each.index, each.sequence, each.reason) for each in self.other(PublishDeadLetter)]


def test_message_becomes_a_dead_letter_and_is_no_effect() -> None:
    """It is answered when the log has it, and counts as acknowledged when it is stored, and never as consumed."""
    world = Letters()
    request = world.give_up(0, "ValueError: no total")
    assert world.answer(request) == "waits"
    world.resolve()
    assert (world.answer(request), world.published()) == ("waits", [])
    world.write()
    assert (world.answer(request), world.published()) == (None, [(0, 0, "ValueError: no total")])
    assert world.ack(world.client, below=3) is None
    world.post(DeadLetterStored(world.number, DLQ, 0))
    world.write()
    assert world.acked() == [0, 1, 2]
    assert world.ask(world.client).consumed == (IndexRange(1, 2),)


@pytest.mark.hazard("dead-letter-beside-the-store")
def test_message_that_is_asked_for_again_becomes_one_dead_letter() -> None:
    """While it waits for its topic, is in flight, is pending, and is stored; by a successor at the next owner."""
    world = Letters()
    requests = [world.give_up(0), world.give_up(0)]
    world.resolve()
    requests.append(world.give_up(0))
    world.write()
    requests.append(world.give_up(0))
    assert [world.answer(each) for each in requests] == [None] * 4
    world.take_over()
    world.resolve()
    assert world.published()[-1] == (0, 0, "")
    successor = world.begin("b")
    world.pass_time(RETURN_WAIT_MS)
    world.write()
    successor.generation = world.state.subscriptions[world.number].generation
    assert successor.generation == 2
    assert world.refusal(0, client=successor) is None
    world.post(DeadLetterStored(world.number, DLQ, 0))
    world.write()
    assert world.refusal(0, client=successor) is None
    assert [type(change) for change, _ in world.chain].count(DeadLettered) == 0
    assert world.state.subscriptions[world.number].dead_letter_next == {DLQ: 1}


def test_message_that_was_acknowledged_meanwhile_is_no_dead_letter() -> None:
    world = Letters()
    world.skip(count=1)
    assert world.refusal(0) is None
    waiting = world.give_up(1)
    world.skip(count=1)
    world.pass_time(1_000)
    assert (world.answer(waiting), world.state.subscriptions[world.number].dead_letters) == (None, {})


def test_request_whose_dead_letter_was_not_written_is_answered_by_the_next_write() -> None:
    world = Letters()
    request = world.give_up(0)
    world.resolve()
    world.fail()
    world.write()
    assert (world.answer(request), [each[:2] for each in world.published()]) == (None, [(0, 0)])


def test_seek_voids_what_is_not_written() -> None:
    """The store asks again, with the new seek epoch."""
    world = Letters()
    waiting = world.give_up(0)
    world.seek(0)
    assert isinstance(world.answer(waiting), StaleSeekEpoch)
    assert isinstance(world.refusal(0, epoch=0), StaleSeekEpoch)
    again = world.give_up(0)
    world.resolve()
    world.write()
    assert world.answer(again) is None


def test_message_that_is_held_again_can_be_given_up() -> None:
    """The consumer has lost its stream, and came back with the message."""
    world = Letters()
    world.detach(world.client)
    was = world.client.subscribed
    everything = ranges(*range(10))
    held = HeldMessages(was.subscription_id, was.seek_epoch, was.generation, everything, everything, {})
    instance = world.client.opening.instance_id.decode()
    again = world.subscribe("a", FAILOVER, window=100, instance=instance, resume=held, first_index=None, **SETTINGS)
    assert again.subscribed.kept == (IndexRange(0, 9),)
    request = world.give_up(0, client=again)
    world.resolve()
    world.write()
    assert world.answer(request) is None
    world.detach(again, lost=False)
    assert world.subscribe("b", FAILOVER, window=100, **SETTINGS).indexes == list(range(1, 10))


def test_deposed_consumer_gives_nothing_up() -> None:
    world = Letters()
    world.begin("0", priority=-1)
    assert isinstance(world.refusal(0), ConsumerFenced)


@pytest.mark.hazard("dead-letter-beside-the-store")
def test_owner_gives_nothing_up_by_itself() -> None:
    """Also if the subscription had a limit before it was bound: a slow consumer applies what becomes a dead letter."""
    world = Effects()
    before = world.subscribe("a", FAILOVER, window=100, max_deliveries=1, dead_letter_topic="dlq")
    world.detach(before, lost=False)
    client = world.subscribe("b", FAILOVER, window=100, **BOUND)
    world.receive(client, 0)
    world.detach(client)
    world.subscribe("c", FAILOVER, window=100, **BOUND)
    world.write()
    assert world.other(ResolveDeadLetterTopic) == []


def test_bad_requests_are_refused() -> None:
    world = Letters()
    assert isinstance(world.refusal(10), InvalidArgument)
    assert isinstance(world.refusal(0, "x" * (REASON_MAX + 1)), InvalidArgument)
    assert isinstance(world.refusal(0, epoch=1), NotOwner)
    without = Effects()
    client = without.subscribe("a", FAILOVER, **BOUND)
    without.post(DeadLetterRequested(client.number, 1, SeekEpoch(0), Generation(1), 0))
    assert isinstance(without.answer(1), InvalidArgument)
    world.topic.drain()
    assert isinstance(world.refusal(0), NotOwner | ServiceUnavailable)
