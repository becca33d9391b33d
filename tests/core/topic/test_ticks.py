"""Ticks of a topic: frequent while something depends on time, rare while nothing does."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.topic_events.effects import StartTopicTimer
from oncelog.core.topic_events.events import TopicTimerFired
from tests.core.acks.ack_log import CREATED, Chain
from tests.core.builders import A, B, C, D, received
from tests.core.topic.topic_world import SETTINGS, Owner, World


def timers(owner: Owner) -> list[tuple[str, int]]:
    """The ticks that were asked for since the last call."""
    found = [(timer.key, timer.after_ms) for timer in owner.emitted(StartTopicTimer) if "tick" in timer.key]
    owner.effects.clear()
    return found


def asleep() -> Owner:
    """A topic that waits for nothing, after its first tick."""
    owner = Owner(World(), "o1").take_over()
    timers(owner)
    owner.tick().run()
    assert timers(owner) == [("idle tick 1", SETTINGS.idle_tick_ms)]
    return owner


def test_idle_topic_ticks_rarely() -> None:
    owner = asleep()
    owner.handle(TopicTimerFired("idle tick 1"))
    assert timers(owner) == [("idle tick 2", SETTINGS.idle_tick_ms)]


def test_event_wakes_the_topic_and_the_former_timer_counts_no_more() -> None:
    """Otherwise each sleep would leave one more row of ticks behind."""
    owner = asleep()
    granted = owner.open("p")
    assert timers(owner)[0] == ("tick", SETTINGS.tick_ms)
    owner.handle(TopicTimerFired("idle tick 1"))
    assert timers(owner) == []
    pid, generation = granted.instance
    owner.send(granted.session, received(0, [0], pid=pid, generation=generation))
    owner.run(SendAdds)
    owner.tick()
    assert timers(owner) == [("tick", SETTINGS.tick_ms)], "a batch is in flight"
    owner.run()
    owner.tick()
    assert timers(owner) == [("idle tick 2", SETTINGS.idle_tick_ms)]


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_topic_with_an_absent_member_stays_awake() -> None:
    """A live node may take its place in half a second."""
    owner = asleep()
    owner.handle(StorageNodesUpdated((A, B, C), read_only=(C,)))
    timers(owner)
    owner.tick()
    assert timers(owner)[0][0].startswith("idle"), "no node could take its place"
    owner.handle(StorageNodesUpdated((A, B, C, D), read_only=(C,)))
    timers(owner)
    owner.tick()
    assert timers(owner) == [("tick", SETTINGS.tick_ms)]


def test_topic_whose_ack_log_cannot_be_written_stays_awake() -> None:
    """It is noticed by ticks (hazard dispatch-paused-for-ever)."""
    world = World()
    chain = Chain(world, Owner(world, "o1").take_over())
    chain.owner.tick().run()
    timers(chain.owner)
    world.silent = {A, B}
    chain.append((CREATED, 0))
    chain.owner.run()
    timers(chain.owner)
    chain.owner.tick()
    assert timers(chain.owner) == [("tick", SETTINGS.tick_ms)]
