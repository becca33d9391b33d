"""Sessions of producers with a lifetime: they count like messages, whenever they begin, end, or lose their owner."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.formats.opening import Lease, Leased, ProducerInstance
from oncelog.core.ids import Generation, ProducerId
from oncelog.core.policies.producer_lifetimes import EIGHTHS
from oncelog.core.topic_events.events import SessionClosed, TopicTimerFired
from tests.core.builders import CONTIGUOUS, A, B, C
from tests.core.publishing.expiry.test_expiry import (
    LIFETIME,
    aged_entries,
    known,
    leased,
    nobody_returns,
    pass_time,
    periods,
    run_out,
    time_of,
)
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner, World


def test_connected_producer_does_not_expire() -> None:
    """Its idle session is as good as a message, also for the next owner: the log knows of it each eighth."""
    world, owner = serving()
    first = leased(owner)
    granted = owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    for _ in range(3 * EIGHTHS):
        pass_time(owner, LIFETIME // EIGHTHS)
        assert age_of(world, 1) <= LIFETIME // EIGHTHS
    owner.handle(SessionClosed(granted.session))
    run_out(owner, 3 * LIFETIME // 2)
    assert not known(owner)


def age_of(world: World, pid: int) -> int:
    """How long ago this producer was active, as the log says."""
    state = world.folded()
    return state.time_ms - state.producers[ProducerId(pid)].active_at_ms


@pytest.mark.hazard("minimum-lifetime-shortened")
@pytest.mark.parametrize("eighths", [2 * EIGHTHS, 2 * EIGHTHS + 1])
def test_lifetime_begins_when_a_session_ends(eighths: int) -> None:
    """Also where the last renewal is nearly old, and the session ends at the end of a period."""
    _, owner = serving()
    first = leased(owner)
    granted = owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    for _ in range(eighths):
        pass_time(owner, LIFETIME // EIGHTHS)
    owner.handle(SessionClosed(granted.session))
    ended_ms = time_of(owner) + periods(owner)[-1].after_ms
    pass_time(owner, LIFETIME)
    assert known(owner) == {1}
    run_out(owner, LIFETIME // 2)
    assert not known(owner)
    assert time_of(owner) >= ended_ms + LIFETIME


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_session_that_has_begun_counts_for_the_next_owner() -> None:
    """The producer was idle nearly for its lifetime; its owner dies a moment after it came back."""
    world, owner = serving()
    first = leased(owner)
    pass_time(owner, LIFETIME)
    owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    owner.run()
    assert age_of(world, 1) == 0
    other = Owner(world, "o2").take_over()
    nobody_returns(other)
    pass_time(other, LIFETIME)
    assert known(other) == {1}


def test_renewal_does_not_overtake_a_grant_in_flight() -> None:
    """The next generation was appended before it: a renewal of the former one behind it would be wrong."""
    world, owner = serving()
    first = leased(owner)
    owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    pass_time(owner, LIFETIME // EIGHTHS)
    call = owner.ask(None, SendAdds, mode=CONTIGUOUS, lease=Lease(first.instance.producer_id, None, LIFETIME))
    owner.handle(TopicTimerFired(periods(owner)[-1].key))
    owner.run()
    answer = owner.answers[call]
    assert isinstance(answer, Leased)
    assert answer.instance == (1, 2)
    assert world.folded().time_ms == 2 * LIFETIME // EIGHTHS
    pass_time(owner, LIFETIME)
    assert known(owner) == {1}


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_renewal_that_was_not_written_is_written_again() -> None:
    """The ledger fails with it, and with the session for which it was written."""
    world, owner = serving()
    first = leased(owner)
    pass_time(owner, LIFETIME)
    world.silent |= {A, B, C}
    owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    owner.run()
    world.silent.clear()
    owner.tick(10_000).run()
    nobody_returns(owner)
    pass_time(owner, LIFETIME)
    assert known(owner) == {1}
    assert [each.renewed for each in aged_entries(world) if each.renewed] == [((1, 1, 0),)]


def test_id_that_was_leased_often_is_renewed_once() -> None:
    """Each lease has put it into a list; an entry renews it once all the same."""
    world, owner = serving()
    leased(owner)
    second = leased(owner, 1)
    owner.open(None, resume=second.instance, mode=CONTIGUOUS)
    pass_time(owner, 3 * LIFETIME)
    assert known(owner) == {1}
    assert all(len(each.renewed) <= 1 for each in aged_entries(world))


def test_many_that_are_connected_are_renewed_in_steps() -> None:
    """No entry has more than its share, and each of them is renewed in time."""
    world, owner = serving()
    assert owner.core.serving is not None
    owner.core.serving.openings.expiry.expired_max = 3
    for pid in range(1, 8):
        leased(owner)
        owner.open(None, resume=ProducerInstance(ProducerId(pid), Generation(1)), mode=CONTIGUOUS)
    for _ in range(2 * EIGHTHS):
        pass_time(owner, LIFETIME // EIGHTHS)
        assert max(age_of(world, pid) for pid in range(1, 8)) <= LIFETIME // 4
    assert known(owner) == set(range(1, 8))
    assert max(len(each.renewed) for each in aged_entries(world)) == 3
