"""Leases, and producers that expire: by time that the log counts, never by a clock."""

import pytest

from oncelog.core.chain.managed_ledger import EntriesAnswered, SendAdds
from oncelog.core.errors import InvalidArgument, OncelogError, PermissionDenied, ProducerExpired, ProducerFenced
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.opening import Granted, Lease, Leased, ProducerInstance
from oncelog.core.formats.producers_aged import ProducersAged, decode_aged
from oncelog.core.ids import NO_SEQUENCE, Generation, InstanceId, ProducerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.policies.producer_lifetimes import EIGHTHS, LEASE_MS, LEASE_MS_MIN, ProducerLifetimes, lease_ms
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing.dedup_state import assigned_name
from oncelog.core.publishing.expiry import EXPIRY_TIMER
from oncelog.core.publishing.reconnect_grace import RETURN_TIMER
from oncelog.core.topic_events.effects import EndSession, StartTopicTimer
from oncelog.core.topic_events.events import DrainRequested, PoliciesChanged, SessionClosed, TopicTimerFired
from tests.core.builders import CONTIGUOUS, received
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner, World

SECOND = 1_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
LIFETIME = lease_ms(60 * SECOND)
X, Y = InstanceId(b"x" * 16), InstanceId(b"y" * 16)


def lease(
    owner: Owner,
    pid: int | None = None,
    generation: int | None = None,
    lifetime_ms: int = LIFETIME,
    **fields: object,
) -> Leased | OncelogError:
    given = None if generation is None else Generation(generation)
    wanted = Lease(None if pid is None else ProducerId(pid), given, lifetime_ms)
    result = owner.answers[owner.ask(None, mode=CONTIGUOUS, lease=wanted, **fields)]
    assert isinstance(result, Leased | OncelogError)
    return result


def leased(owner: Owner, pid: int | None = None, generation: int | None = None, **fields: object) -> Leased:
    result = lease(owner, pid, generation, **fields)  # type: ignore[arg-type]
    assert isinstance(result, Leased), result
    return result


def pass_time(owner: Owner, ms: int) -> None:
    """Let the timers of the topic's log fire until so much time has passed in it."""
    owner.tick()
    owner.run()
    until_ms, fired = time_of(owner) + ms, ""
    while time_of(owner) < until_ms:
        key = periods(owner)[-1].key
        assert key != fired, "no further period begins"
        owner.handle(TopicTimerFired(key))
        owner.run()
        fired = key


def run_out(owner: Owner, within_ms: int) -> None:
    """Let the timers fire until nothing can expire any more, which takes at most so much time of the log."""
    owner.tick()
    owner.run()
    before_ms, fired = time_of(owner), ""
    while (key := periods(owner)[-1].key) != fired and time_of(owner) <= before_ms + within_ms:
        owner.handle(TopicTimerFired(key))
        owner.run()
        fired = key
    assert time_of(owner) <= before_ms + within_ms


def periods(owner: Owner) -> list[StartTopicTimer]:
    return [timer for timer in owner.emitted(StartTopicTimer) if timer.key.startswith(EXPIRY_TIMER)]


def nobody_returns(owner: Owner) -> None:
    """The time ends in which the holders of names could come back after a takeover."""
    for timer in owner.emitted(StartTopicTimer):
        if timer.key.startswith(RETURN_TIMER):
            owner.handle(TopicTimerFired(timer.key))


def time_of(owner: Owner) -> int:
    assert owner.core.serving is not None
    return owner.core.serving.log.table.state.time_ms


def known(owner: Owner) -> set[int]:
    assert owner.core.serving is not None
    return set(owner.core.serving.log.table.state.producers)


def aged_entries(world: World) -> list[ProducersAged]:
    """Of the whole log, in order."""
    entries = [data for link in world.links for data in world.entries_of(link.ledger_id).values()]
    return [decode_aged(body_of(data)) for data in entries if peek_header(data).kind == EntryKind.PRODUCERS_AGED]


# --- leases -----------------------------------------------------------------------------------------------------------


def test_new_lease_is_durable_before_it_is_answered() -> None:
    """Generation 1, nothing stored yet, and a session is not opened."""
    _, owner = serving()
    call = owner.ask(None, SendAdds, mode=CONTIGUOUS, lease=Lease(None, None, LIFETIME))
    assert call not in owner.answers
    owner.run()
    answer = owner.answers[call]
    assert answer == Leased(
        assigned_name(ProducerId(1)), ProducerInstance(ProducerId(1), Generation(1)), NO_SEQUENCE, LIFETIME
    )


def test_lease_of_an_existing_id_fences_its_holder() -> None:
    """Generation + 1, with the highest id that was handed to the log."""
    _, owner = serving()
    first = leased(owner)
    session = owner.open(None, resume=first.instance, mode=CONTIGUOUS, instance_id=Y)
    owner.send(session.session, received(1, [0]))
    second = leased(owner, first.instance.producer_id)
    assert (second.instance.generation, second.last_sequence_id) == (2, 0)
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (session.session, ProducerFenced)
    assert isinstance(lease(owner, first.instance.producer_id, 1), ProducerFenced)


@pytest.mark.hazard("renewal-fences-itself")
def test_renewal_does_not_get_the_proof_of_the_next_generation() -> None:
    """Both become durable in one step: the former holder is told that it is fenced."""
    _, owner = serving()
    pid = leased(owner).instance.producer_id
    renewal, next_one = (
        owner.ask(None, SendAdds, mode=CONTIGUOUS, lease=Lease(pid, generation, LIFETIME))
        for generation in (Generation(1), None)
    )
    renewed, fenced = owner.emitted(SendAdds)[-2:]
    ids = [add.entry_id for add in (*renewed.adds, *fenced.adds)]
    for member in renewed.members[:2]:
        owner.handle(EntriesAnswered(renewed.ledger_id, member, ids, AppendStatus.OK))
    granted = owner.answers[next_one]
    assert isinstance(granted, Leased)
    assert granted.instance == (1, 2)
    assert isinstance(owner.answers[renewal], ProducerFenced)


@pytest.mark.hazard("renewal-fences-itself")
def test_who_proves_the_current_generation_renews() -> None:
    """Nobody is fenced, also where the same request is repeated."""
    _, owner = serving()
    first = leased(owner, instance_id=X)
    session = owner.open(None, resume=first.instance, mode=CONTIGUOUS, instance_id=Y)
    for _ in range(2):
        assert leased(owner, first.instance.producer_id, 1, instance_id=X).instance == first.instance
    assert not owner.emitted(EndSession)
    owner.send(session.session, received(1, [0]))
    owner.run()
    assert owner.result(1)


def test_repeated_request_gets_the_same_lease() -> None:
    """Its answer was lost: no second id is leased, and no holder fences itself."""
    _, owner = serving()
    assert leased(owner, instance_id=X) == leased(owner, instance_id=X)
    again = leased(owner, 1, instance_id=Y)
    assert leased(owner, 1, instance_id=Y) == again
    assert again.instance == (1, 2)


def test_repeated_request_behind_another_lease_gets_the_next_generation() -> None:
    """Another program has leased the id since: a lease that is fenced already helps nobody, so one is skipped."""
    _, owner = serving()
    leased(owner)
    assert leased(owner, 1, instance_id=X).instance == (1, 2)
    assert leased(owner, 1, instance_id=Y).instance == (1, 3)
    assert leased(owner, 1, instance_id=X).instance == (1, 4)


def test_lease_survives_its_owner() -> None:
    """Also one that has never published: it is not leased to anyone else, and its generation counts."""
    world, owner = serving()
    leased(owner, leased(owner).instance.producer_id)
    other = Owner(world, "o2").take_over()
    assert leased(other).instance == (2, 1)
    assert isinstance(lease(other, 1, 1), ProducerFenced)
    assert leased(other, 1, 2).instance == (1, 2)


def test_lease_that_cannot_be() -> None:
    """Another topic's id, a generation that was never granted, another role's."""
    _, owner = serving()
    assert isinstance(lease(owner, 77), ProducerExpired)
    leased(owner, role="importer", takes_any_name=False)
    assert isinstance(lease(owner, 1, 5), InvalidArgument)
    assert isinstance(lease(owner, 1, role="other", takes_any_name=False), PermissionDenied)


def test_lease_of_a_chosen_name_keeps_name_and_mode() -> None:
    """An id is an id: also one whose name an application has chosen."""
    _, owner = serving()
    granted = owner.open("p")
    again = leased(owner, granted.instance.producer_id)
    assert (again.name, again.instance.generation) == ("p", 2)
    assert owner.open("p").instance.generation == 3


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_idle_lease_expires_and_its_name_is_free() -> None:
    """Not before its lifetime; its id is not known any more, and its zombie is told."""
    world, owner = serving()
    first = leased(owner)
    pass_time(owner, LIFETIME)
    assert known(owner) == {1}
    run_out(owner, LIFETIME // 4)
    assert not known(owner)
    assert isinstance(lease(owner, 1), ProducerExpired)
    zombie = owner.answers[owner.ask(first.name, present=first.instance, mode=CONTIGUOUS)]
    assert isinstance(zombie, ProducerExpired)
    assert owner.open(first.name, mode=CONTIGUOUS).instance == (2, 1)
    assert set(world.folded().producers) == {2}


def test_each_message_and_renewal_extends_a_lease() -> None:
    """By a whole lifetime."""
    _, owner = serving()
    first = leased(owner)
    granted = owner.open(None, resume=first.instance, mode=CONTIGUOUS)
    owner.send(granted.session, received(1, [0]))
    owner.handle(SessionClosed(granted.session))
    pass_time(owner, LIFETIME * 3 // 4)
    leased(owner, 1, 1)
    pass_time(owner, LIFETIME)
    assert known(owner) == {1}
    run_out(owner, LIFETIME // 4)
    assert not known(owner)


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_clocks_sleep_and_takeovers_never_shorten_a_lifetime() -> None:
    """A clock that jumps by a year, a timer that fires late, and an owner that ends in the middle of a period."""
    world, owner = serving()
    leased(owner)
    owner.now_ms += 366 * 86_400 * SECOND
    pass_time(owner, LIFETIME // 2)
    for number in range(3):
        owner = Owner(world, f"next {number}").take_over()
        owner.tick().run()  # a period begins, and does not end
    owner.now_ms -= 10_000 * 86_400 * SECOND
    pass_time(owner, LIFETIME // 2)
    assert known(owner) == {1}
    nobody_returns(owner)
    run_out(owner, LIFETIME // 4)
    assert not known(owner)


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_long_period_does_not_count_for_a_short_lease() -> None:
    """It began an hour before the lease, and ends a moment after it."""
    _, owner = serving()
    leased(owner, lifetime_ms=LEASE_MS)
    owner.tick().run()
    long = periods(owner)[-1]
    assert long.after_ms > LEASE_MS_MIN
    call = owner.ask(None, SendAdds, mode=CONTIGUOUS, lease=Lease(None, None, LEASE_MS_MIN))
    owner.handle(TopicTimerFired(long.key))
    owner.run()
    assert isinstance(owner.answers[call], Leased)
    assert time_of(owner) == 0
    pass_time(owner, LEASE_MS_MIN)
    assert known(owner) == {1, 2}


def test_names_expire_by_policy() -> None:
    """Assigned ones, and chosen ones, if the policies say so."""
    _, owner = serving()
    for name in (None, "chosen"):
        owner.handle(SessionClosed(owner.open(name).session))
    owner.tick().run()
    assert not periods(owner)
    owner.handle(PoliciesChanged(TopicPolicies(lifetimes=ProducerLifetimes())))
    run_out(owner, LEASE_MS * 5 // 4)
    assert known(owner) == {2}
    owner.handle(PoliciesChanged(TopicPolicies(lifetimes=ProducerLifetimes(chosen_ms=DAY))))
    run_out(owner, DAY * 5 // 4)
    assert not known(owner)


def policies(owner: Owner, **lifetimes: int) -> None:
    owner.handle(PoliciesChanged(TopicPolicies(lifetimes=ProducerLifetimes(**lifetimes))))
    owner.tick().run()


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_shorter_policy_counts_from_the_change_on() -> None:
    """A producer that has been idle for a month has a whole day when the policy becomes one day, and so has one of a
    log that says nothing yet. A takeover in between does not shorten it, and a snapshot keeps it."""
    world, owner = serving()
    owner.handle(SessionClosed(owner.open("p").session))
    policies(owner, chosen_ms=60 * DAY)
    pass_time(owner, 30 * DAY)
    policies(owner, chosen_ms=DAY)
    pass_time(owner, DAY // 2)
    owner.handle(DrainRequested())
    owner.run()
    owner = Owner(world, "o2").take_over()
    nobody_returns(owner)
    policies(owner, chosen_ms=DAY)
    pass_time(owner, DAY // 4)
    assert known(owner) == {1}
    run_out(owner, DAY // 2)
    assert not known(owner)


def test_longer_policy_holds_at_once() -> None:
    """Also while another policy is on its way into the log: nothing expires by one that does not hold any more."""
    _, owner = serving()
    owner.handle(SessionClosed(owner.open("p").session))
    policies(owner, chosen_ms=2 * DAY)
    pass_time(owner, 2 * DAY + 5 * HOUR)
    for chosen_ms in (DAY, 0):
        owner.handle(PoliciesChanged(TopicPolicies(lifetimes=ProducerLifetimes(chosen_ms=chosen_ms))))
        owner.tick()
        owner.handle(TopicTimerFired(periods(owner)[-1].key))
    run_out(owner, 2 * HOUR)
    assert known(owner) == {1}


def test_only_leases_expire_while_policies_are_not_known() -> None:
    """After a takeover ZooKeeper may not answer for hours, and an operator may have made the policies longer."""
    world, owner = serving()
    owner.handle(SessionClosed(owner.open("p").session))
    policies(owner, chosen_ms=DAY)
    pass_time(owner, DAY // 2)
    leased(owner)
    owner = Owner(world, "o2").take_over()
    nobody_returns(owner)
    pass_time(owner, 3 * DAY)
    assert known(owner) == {1}


def test_lease_keeps_its_lifetime_under_every_policy() -> None:
    """It was promised. A lease that states none gets that of the policy of its time."""
    _, owner = serving()
    leased(owner)
    policies(owner, assigned_ms=8 * HOUR, chosen_ms=8 * HOUR, lease_ms=2 * LIFETIME)
    call = owner.ask(None, mode=CONTIGUOUS, lease=Lease(None, None, 0))
    owner.run()
    stated_none = owner.answers[call]
    assert isinstance(stated_none, Leased)
    assert 2 * LIFETIME <= stated_none.expires_in_ms < 9 * LIFETIME // 4
    policies(owner, assigned_ms=8 * HOUR, chosen_ms=8 * HOUR, lease_ms=LEASE_MS_MIN)
    pass_time(owner, LIFETIME)
    assert known(owner) == {1, 2}
    pass_time(owner, LIFETIME - LIFETIME // 4)
    assert known(owner) == {2}


def test_topic_of_chosen_names_gets_no_entry_about_them() -> None:
    """By default they live for ever, so that a topic costs nothing for it."""
    _, owner = serving()
    owner.open("p")
    policies(owner)
    assert not periods(owner)


def expiring() -> tuple[World, Owner, Leased]:
    """An owner with a lease that expires by an entry in flight."""
    world, owner = serving()
    lease_ = leased(owner)
    pass_time(owner, LIFETIME)
    until_expiry_is_in_flight(owner)
    return world, owner, lease_


def until_expiry_is_in_flight(owner: Owner) -> None:
    assert owner.core.serving is not None
    while not (in_flight := owner.core.serving.log.in_flight) or not (aged := in_flight[0].aged) or not aged.expired:
        owner.run()
        owner.handle(TopicTimerFired(periods(owner)[-1].key))
        owner.run(SendAdds)


def test_opening_while_its_name_expires_waits() -> None:
    """Neither the old producer, whose end is in flight, nor a second one is granted."""
    _, owner, first = expiring()
    call = owner.ask(first.name, SendAdds, mode=CONTIGUOUS)
    assert call not in owner.answers
    owner.run()
    assert isinstance(owner.answers[call], Granted)
    assert owner.open(first.name, mode=CONTIGUOUS).instance == (2, 2)


def test_expiry_that_was_not_written_has_not_happened() -> None:
    """The producer is there as before, and expires at the next owner."""
    world, _, _ = expiring()
    other = Owner(world, "o2").take_over()
    assert known(other) == {1}
    nobody_returns(other)
    run_out(other, LIFETIME // 4)
    assert not known(other)


def test_expiry_in_flight_is_not_appended_again() -> None:
    """The id was leased twice, so it is in a list twice; the write takes longer than a period."""
    world, owner = serving()
    leased(owner)
    pass_time(owner, LIFETIME // 8)
    leased(owner, 1)
    pass_time(owner, LIFETIME // 4)
    leased(owner)
    until_expiry_is_in_flight(owner)
    for _ in range(EIGHTHS):
        owner.handle(TopicTimerFired(periods(owner)[-1].key))
        owner.run(SendAdds)
    owner.run()
    assert [each.expired for each in aged_entries(world) if each.expired] == [(1,), (2,)]
    assert set(world.folded().producers) == known(owner) == set()


# --- many -------------------------------------------------------------------------------------------------------------


def test_many_expire_in_steps() -> None:
    """No entry and no step has more than its share; in the end all are gone."""
    world, owner = serving()
    assert owner.core.serving is not None
    owner.core.serving.openings.expiry.expired_max = 3
    for _ in range(7):
        leased(owner)
    run_out(owner, 5 * LIFETIME // 4)
    assert not known(owner)
    assert [len(each.expired) for each in aged_entries(world) if each.expired] == [3, 3, 1]


@pytest.mark.hazard("minimum-lifetime-shortened")
def test_period_is_an_eighth_of_a_short_lease_also_while_others_are_due() -> None:
    """The rest of a step follows soon, but never after a longer period than the shortest lease allows."""
    _, owner = serving()
    assert owner.core.serving is not None
    owner.core.serving.openings.expiry.expired_max = 1
    for name in (X, Y):
        leased(owner, lifetime_ms=300, instance_id=name)
    run_out(owner, 600)
    assert not known(owner)
    assert max(timer.after_ms for timer in periods(owner)) <= 300 // EIGHTHS


def test_next_owner_knows_what_the_log_says() -> None:
    """A snapshot in the middle, leases, renewals and expiries: the next owner's state is the fold of the log."""
    world, owner = serving()
    for _ in range(5):
        leased(owner)
    pass_time(owner, LIFETIME // 2)
    leased(owner, 3, 1)
    owner.open(None, resume=ProducerInstance(ProducerId(4), Generation(1)), mode=CONTIGUOUS)
    pass_time(owner, LIFETIME)
    assert known(owner) == {3, 4}
    other = Owner(world, "o2").take_over()
    assert known(other) == {3, 4}
    assert other.core.serving is not None
    assert other.core.serving.log.table.state.time_ms == world.folded().time_ms == time_of(owner)
