"""Opening producers: which requests are granted, wait or are refused, and with which error."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import (
    InvalidArgument,
    ModeMismatch,
    OncelogError,
    PermissionDenied,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    SessionEnded,
    UnknownProducer,
)
from oncelog.core.formats.opening import Granted, OnConflict, ProducerInstance
from oncelog.core.ids import GENERATION_MAX, NO_INSTANCE, NO_SEQUENCE, Generation, InstanceId, OwnerEpoch, ProducerId
from oncelog.core.publishing.producer_record import decode_row, encode_row
from oncelog.core.publishing.reconnect_grace import RETURN_TIMER
from oncelog.core.records.records import Kind
from oncelog.core.topic_events.effects import AllocateProducerId, EndSession, StartTopicTimer
from oncelog.core.topic_events.events import (
    HigherEpochReported,
    OpeningAbandoned,
    ProducerIdAllocated,
    SessionClosed,
    TopicTimerFired,
)
from tests.core.builders import CONTIGUOUS, PID, A, B, C, received
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import READ_TOPIC, Owner

X, Y = InstanceId(b"x" * 16), InstanceId(b"y" * 16)


def instance(generation: int, pid: int = PID) -> ProducerInstance:
    return ProducerInstance(ProducerId(pid), Generation(generation))


def refusal(owner: Owner, name: str | None = "p", /, **fields: object) -> type[OncelogError]:
    result = owner.answers[owner.ask(name, **fields)]
    assert isinstance(result, OncelogError), result
    return type(result)


def test_first_open_binds_a_name_and_grants_generation_one() -> None:
    """Durable before it is answered; nothing was stored, so the last id is -1."""
    _, owner = serving()
    call = owner.ask("p", SendAdds)
    assert call not in owner.answers
    owner.run()
    granted = owner.answers[call]
    assert isinstance(granted, Granted)
    assert (granted.name, granted.instance, granted.last_sequence_id, granted.final) == ("p", (1, 1), NO_SEQUENCE, True)


@pytest.mark.hazard("resent-to-another-partition")
def test_growths_of_a_name_are_those_of_its_first_opening() -> None:
    """Also for a later instance that knows of more growths, and at the next owner."""
    world, owner = serving()
    assert owner.open(growths=2).growths == 2
    assert owner.open(growths=3).growths == 2
    assert owner.core.serving is not None
    (state,) = (state for _, state in owner.core.serving.log.table.state.producers.items())
    assert decode_row(state.name, encode_row(state)) == state
    assert Owner(world, "o2").take_over().open(growths=3).growths == 2


def test_next_opening_fences_the_earlier_instance() -> None:
    """Every older one, from that position of the log on."""
    _, owner = serving()
    first = owner.open()
    second = owner.open()
    assert second.instance == (1, 2)
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (first.session, ProducerFenced)
    assert refusal(owner, None, resume=first.instance) is ProducerFenced


def test_last_id_of_a_new_instance_is_final() -> None:
    """The grant stands behind the writes in flight: when it is durable, so are they. 0 is an id."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    assert owner.open().last_sequence_id == 0


def test_last_id_of_a_resumed_instance_is_not_final() -> None:
    """Its writes may still be in flight; it never lowers the client's counter."""
    _world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    call = owner.ask(None, SendAdds, resume=granted.instance)
    again = owner.answers[call]
    assert isinstance(again, Granted)
    assert (again.instance, again.last_sequence_id, again.final) == (granted.instance, NO_SEQUENCE, False)


def test_assigned_name_contains_the_producer_id() -> None:
    """Globally unique, for the id is; a name that a producer has chosen already is skipped."""
    _, owner = serving()
    assert owner.open("producer-2").instance.producer_id == 1
    granted = owner.open(None)
    assert granted.name == f"producer-{granted.instance.producer_id}"
    assert granted.instance.producer_id == 3


def test_connected_name_is_refused_to_an_opening_with_refuse() -> None:
    """Connected: busy. Its stream broken: free."""
    _, owner = serving()
    granted = owner.open()
    assert refusal(owner, on_conflict=OnConflict.REFUSE) is ProducerBusy
    owner.handle(SessionClosed(granted.session))
    assert owner.open(on_conflict=OnConflict.REFUSE).instance == (1, 2)


def test_two_openings_with_refuse_get_one_grant() -> None:
    """The second one waits for the first one's grant, and is refused."""
    _, owner = serving()
    first = owner.ask("p", AllocateProducerId, on_conflict=OnConflict.REFUSE)
    second = owner.ask("p", on_conflict=OnConflict.REFUSE)
    assert isinstance(owner.answers[first], Granted)
    assert isinstance(owner.answers[second], ProducerBusy)


def test_two_openings_of_a_new_name_bind_it_once() -> None:
    """Both asked for an id; the second one's is wasted, and it fences the first."""
    _, owner = serving()
    calls = [owner.ask("p", AllocateProducerId), owner.ask("p", AllocateProducerId)]
    owner.run()
    granted = [owner.answers[call] for call in calls]
    assert [g.instance for g in granted if isinstance(g, Granted)] == [(1, 1), (1, 2)]


@pytest.mark.hazard("incomplete-grant")
@pytest.mark.parametrize("fields", [{}, {"resume": instance(1)}, {"present": instance(1)}])
def test_other_mode_is_refused(fields: dict[str, object]) -> None:
    """The name is bound to its mode, for a new instance as for the same one."""
    _, owner = serving()
    owner.open()
    assert refusal(owner, "p", **{"mode": CONTIGUOUS, **fields}) is ModeMismatch


def test_resume_with_an_unknown_id_must_open_by_name() -> None:
    """The same holds for an id that is bound to another name here."""
    _, owner = serving()
    owner.open("p")
    owner.open("q")
    assert refusal(owner, None, resume=instance(1, pid=9)) is UnknownProducer
    assert refusal(owner, "q", resume=instance(1)) is UnknownProducer


def test_current_instance_may_present_itself() -> None:
    """By name, with its id and generation: granted with the same generation."""
    _, owner = serving()
    granted = owner.open()
    again = owner.open("p", present=granted.instance)
    assert (again.instance, again.final) == (granted.instance, False)


@pytest.mark.hazard("forgotten-producer")
def test_fenced_instance_that_presents_itself_is_refused() -> None:
    """With a plain open by name it would get the next generation, and win."""
    _, owner = serving()
    zombie = owner.open()
    owner.open()
    assert refusal(owner, present=zombie.instance) is ProducerFenced


@pytest.mark.hazard("forgotten-producer")
def test_presented_instance_that_the_log_does_not_contain_is_expired() -> None:
    """Its state is gone, or the name is another producer's by now: presenting again would never end."""
    _, owner = serving()
    assert refusal(owner, present=instance(1)) is ProducerExpired
    owner.open()
    assert refusal(owner, present=instance(1, pid=9)) is ProducerExpired


def test_generation_that_was_never_granted_is_refused() -> None:
    """The record names this owner, so no other owner can have granted it."""
    _, owner = serving()
    owner.open()
    assert refusal(owner, None, resume=instance(7)) is InvalidArgument


def test_generations_do_not_wrap_around() -> None:
    """If it began again at 1, an old instance would be current again."""
    _, owner = serving()
    owner.open()
    assert owner.core.serving is not None
    owner.core.serving.log.table.state.producers[PID].generation = Generation(GENERATION_MAX)
    assert refusal(owner) is InvalidArgument


def test_resume_waits_for_a_grant_in_flight() -> None:
    """If the grant fails, this instance is still the current one."""
    _, owner = serving()
    granted = owner.open()
    taker = owner.ask("p", SendAdds)
    call = owner.ask(None, SendAdds, resume=granted.instance)
    assert call not in owner.answers
    owner.run()
    assert isinstance(owner.answers[taker], Granted)
    assert isinstance(owner.answers[call], ProducerFenced)


def test_opening_waits_for_the_next_ledger() -> None:
    """During a roll, the grant is written to the new ledger. The former one is empty, so it leaves the list."""
    world, owner = serving()
    owner.roll()
    call = owner.ask("p")
    assert isinstance(owner.answers[call], Granted)
    assert [link.ledger_id for link in world.record.ledgers] == [2]


def test_producer_id_without_a_request_is_ignored() -> None:
    """An allocation from before a takeover."""
    _, owner = serving()
    assert owner.handle(ProducerIdAllocated(99, ProducerId(50))) == []
    assert owner.open().instance.producer_id == 1


def granted_to(owner: Owner, call: int) -> Granted:
    result = owner.answers[call]
    assert isinstance(result, Granted), result
    return result


@pytest.mark.parametrize("name", ["p", None])
@pytest.mark.parametrize("hold", [AllocateProducerId, SendAdds])
def test_repeat_by_the_same_instance_replaces_its_request(name: str | None, hold: type) -> None:
    """While its producer id is asked for, and while its grant is on its way: one grant, to the newest request."""
    _, owner = serving()
    calls = [owner.ask(name, hold, instance_id=X) for _ in range(3)]
    assert [type(owner.answers[call]) for call in calls[:2]] == [SessionEnded, SessionEnded]
    owner.run()
    assert granted_to(owner, calls[2]).instance == (1, 1)
    assert len(owner.emitted(AllocateProducerId)) == 1
    assert owner.core.serving is not None
    assert len(owner.core.serving.sessions.open_sessions) == 1


@pytest.mark.parametrize("on_conflict", list(OnConflict))
@pytest.mark.parametrize("name", ["p", None])
def test_repeat_of_an_answered_request_gets_the_same_grant(name: str | None, on_conflict: OnConflict) -> None:
    """The answer was lost: a new session of the same generation, also for one that asks not to fence."""
    _, owner = serving()
    first = owner.open(name, instance_id=X, on_conflict=on_conflict)
    again = owner.open(name, instance_id=X, on_conflict=on_conflict)
    assert (again.instance, again.name, again.final) == (first.instance, first.name, True)
    assert again.session != first.session
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (first.session, SessionEnded)


@pytest.mark.parametrize("on_conflict", list(OnConflict))
@pytest.mark.parametrize("name", ["p", None])
def test_repeat_at_the_next_owner_finds_its_grant(name: str | None, on_conflict: OnConflict) -> None:
    """The grant was durable, and the owner died before it answered."""
    world, owner = serving()
    first = owner.open(name, instance_id=X, on_conflict=on_conflict)
    after = Owner(world, "second").take_over()
    again = after.open(name, instance_id=X, on_conflict=on_conflict)
    assert (again.instance, again.name, again.final) == (first.instance, first.name, True)


def test_instances_are_distinguished_by_their_ids() -> None:
    """By their ids, and those without one always."""
    _, owner = serving()
    assert [owner.open(instance_id=i).instance.generation for i in (X, Y, X, NO_INSTANCE, NO_INSTANCE)] == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_resume_by_another_instance_is_fenced() -> None:
    """A client that guesses producer id and generation is not the instance that has them."""
    _, owner = serving()
    granted = owner.open(instance_id=X)
    assert refusal(owner, None, resume=granted.instance, instance_id=Y) is ProducerFenced
    assert owner.open(resume=granted.instance, instance_id=X).instance == granted.instance


@pytest.mark.parametrize("hold", [AllocateProducerId, READ_TOPIC])
def test_withdrawn_request_grants_nothing(hold: Kind) -> None:
    """The client withdrew it, or is gone."""
    _, owner = serving()
    owner.open("old")
    epoch = OwnerEpoch(2 if hold is READ_TOPIC else 0)
    call = owner.ask("p" if hold is AllocateProducerId else "old", hold, instance_id=X, owner_epoch_seen=epoch)
    owner.handle(OpeningAbandoned(call))
    owner.run()
    assert call not in owner.answers
    assert owner.core.serving is not None
    assert [p.generation for p in owner.core.serving.log.table.state.producers.values()] == [1]


def test_withdrawn_grant_in_flight_opens_no_session() -> None:
    """It becomes durable, so the earlier instance is fenced; no instance is connected."""
    _, owner = serving()
    before = owner.open(instance_id=X)
    call = owner.ask("p", SendAdds, instance_id=Y)
    owner.handle(OpeningAbandoned(call))
    owner.run()
    assert call not in owner.answers
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (before.session, ProducerFenced)
    assert owner.core.serving is not None
    assert not owner.core.serving.sessions.open_sessions
    assert owner.open(on_conflict=OnConflict.REFUSE, instance_id=Y).instance == (1, 2)


def test_repeat_after_a_withdrawal_gets_the_grant_in_flight() -> None:
    """Withdrawing comes first and the repeat after it: still one grant."""
    _, owner = serving()
    owner.handle(OpeningAbandoned(owner.ask("p", SendAdds, instance_id=X)))
    call = owner.ask("p", SendAdds, instance_id=X)
    owner.run()
    assert granted_to(owner, call).instance == (1, 1)


def test_requests_keep_their_order_while_ids_are_allocated() -> None:
    """A ledger rolls meanwhile. The first request for the name is granted first."""
    _, owner = serving()
    first = owner.ask("p", AllocateProducerId, instance_id=X)
    owner.roll()
    owner.run(SendAdds, AllocateProducerId)
    second = owner.ask("p", AllocateProducerId, instance_id=Y)
    owner.run()
    assert [granted_to(owner, call).instance.generation for call in (first, second)] == [1, 2]


def test_id_of_a_withdrawn_request_goes_to_the_next() -> None:
    """One ask, one id: a client that asks again and again wastes none."""
    _, owner = serving()
    for _ in range(3):
        owner.handle(OpeningAbandoned(owner.ask("p", AllocateProducerId, instance_id=X)))
    call = owner.ask("q", AllocateProducerId, instance_id=Y)
    owner.run()
    assert granted_to(owner, call).instance == (1, 1)
    assert len(owner.emitted(AllocateProducerId)) == 1


def test_repeat_replaces_its_request_during_a_takeover() -> None:
    """A takeover that takes long gathers one request of each instance, not one for each try."""
    world, _ = serving()
    owner = Owner(world, "second").take_over(READ_TOPIC)
    calls = [owner.ask("p", READ_TOPIC, instance_id=X) for _ in range(3)]
    assert [type(owner.answers[call]) for call in calls[:2]] == [SessionEnded, SessionEnded]
    gone = owner.ask("p", READ_TOPIC, instance_id=Y)
    owner.handle(OpeningAbandoned(gone))
    owner.run()
    assert granted_to(owner, calls[2]).instance == (1, 1)
    assert gone not in owner.answers


def test_failed_write_leaves_no_grant_behind() -> None:
    """The instance gets an error, and retries."""
    world, owner = serving()
    call = owner.ask("p", SendAdds, instance_id=X)
    world.silent |= {A, B, C}
    owner.run()
    world.silent.clear()
    owner.tick(10_000).run()
    assert isinstance(owner.answers[call], SessionEnded)
    assert owner.open("p", instance_id=X).instance.generation == 1


def grace_over(owner: Owner) -> None:
    """The newest timer of the reconnect grace period fires."""
    timers = [timer for timer in owner.emitted(StartTopicTimer) if timer.key.startswith(RETURN_TIMER)]
    owner.handle(TopicTimerFired(timers[-1].key))
    owner.run()


def test_opening_with_refuse_waits_for_the_holder_after_a_takeover() -> None:
    """The holder lives and comes back: it is not fenced, and the other instance gets ProducerBusy."""
    world, owner = serving()
    holder = owner.open(instance_id=X)
    after = Owner(world, "second").take_over()
    newcomer = after.ask("p", instance_id=Y, on_conflict=OnConflict.REFUSE)
    assert newcomer not in after.answers
    assert after.open("p", resume=holder.instance, instance_id=X).instance == holder.instance
    assert isinstance(after.answers[newcomer], ProducerBusy)


def test_holder_that_does_not_reconnect_loses_its_name() -> None:
    """It loses the name after the grace period."""
    world, owner = serving()
    owner.open(instance_id=X)
    after = Owner(world, "second").take_over()
    call = after.ask("p", instance_id=Y, on_conflict=OnConflict.REFUSE)
    assert StartTopicTimer(f"{RETURN_TIMER} 2.0", 12_000) in after.emitted(StartTopicTimer)
    grace_over(after)
    assert granted_to(after, call).instance.generation == 2
    assert granted_to(after, after.ask("p", instance_id=Y, on_conflict=OnConflict.REFUSE)).instance.generation == 2


def test_other_openings_do_not_wait_after_a_takeover() -> None:
    """An opening that fences, one by the same instance, and one of a new name are granted at once."""
    world, owner = serving()
    owner.open("p")
    holder = owner.open("q", instance_id=X)
    after = Owner(world, "second").take_over()
    assert after.open("p").instance.generation == 2
    assert after.open("q", instance_id=X, on_conflict=OnConflict.REFUSE).instance == holder.instance
    assert after.open("new", on_conflict=OnConflict.REFUSE).instance.generation == 1


def test_holder_that_reconnected_and_closed_is_not_awaited() -> None:
    """It is not awaited a second time."""
    world, owner = serving()
    holder = owner.open(instance_id=X)
    after = Owner(world, "second").take_over()
    again = after.open("p", resume=holder.instance, instance_id=X)
    after.handle(SessionClosed(again.session))
    assert after.open("p", instance_id=Y, on_conflict=OnConflict.REFUSE).instance.generation == 2


def test_holder_may_reconnect_after_a_failed_write() -> None:
    """That ended its session, and a newcomer could be quicker."""
    world, owner = serving()
    holder = owner.open(instance_id=X)
    owner.open("free", instance_id=X)
    owner.handle(SessionClosed(owner.open("free", instance_id=X).session))
    world.silent |= {A, B, C}
    owner.send(holder.session, received(1, [0]))
    owner.run()
    world.silent.clear()
    owner.tick(10_000).run()
    assert isinstance(owner.emitted(EndSession)[-1].error, SessionEnded)
    call = owner.ask("p", instance_id=Y, on_conflict=OnConflict.REFUSE)
    assert call not in owner.answers
    assert owner.open("free", instance_id=Y, on_conflict=OnConflict.REFUSE).instance.generation == 2
    grace_over(owner)
    assert granted_to(owner, call).instance.generation == 2


def test_timer_of_an_earlier_wait_is_ignored() -> None:
    """Only the time since this takeover counts."""
    world, owner = serving()
    owner.open(instance_id=X)
    after = Owner(world, "second").take_over()
    (first,) = [timer for timer in after.emitted(StartTopicTimer) if timer.key.startswith(RETURN_TIMER)]
    after.now_ms = 5
    after.handle(HigherEpochReported())
    after.run()
    call = after.ask("p", instance_id=Y, on_conflict=OnConflict.REFUSE)
    after.handle(TopicTimerFired(first.key))
    after.run()
    assert call not in after.answers
    grace_over(after)
    assert granted_to(after, call)


def test_name_belongs_to_the_role_that_opened_it_first() -> None:
    """Another role needs the right to take any name, and does not own it then; also at the next owner."""
    world, owner = serving()
    owner.open(role="importer", takes_any_name=False)
    for one in (owner, Owner(world, "second")):
        if one is not owner:
            one.take_over()
        result = one.answers[one.ask("p", role="auditor", takes_any_name=False)]
        assert isinstance(result, PermissionDenied)
        assert result.details["role"] == "importer"
        assert "importer" in result.message
        assert one.open(role="auditor", takes_any_name=True)
        assert one.open(role="importer", takes_any_name=False)


def test_name_without_a_role_is_open_to_every_role() -> None:
    """It was bound while authentication was off. The first role that opens it owns it from then on."""
    _, owner = serving()
    owner.open()
    owner.open(role="importer", takes_any_name=False)
    assert refusal(owner, role="auditor", takes_any_name=False) is PermissionDenied


def test_name_in_flight_belongs_to_its_role() -> None:
    """Its grant is not durable yet."""
    _, owner = serving()
    first = owner.ask("p", SendAdds, role="importer", takes_any_name=False)
    second = owner.ask("p", SendAdds, role="auditor", takes_any_name=False)
    owner.run()
    assert granted_to(owner, first)
    assert isinstance(owner.answers[second], PermissionDenied)


def test_instance_of_another_role_cannot_resume() -> None:
    """A client that knows producer id, generation and instance id needs the role, too."""
    _, owner = serving()
    granted = owner.open(role="importer", takes_any_name=False, instance_id=X)
    how = {"resume": granted.instance, "instance_id": X, "takes_any_name": False}
    assert refusal(owner, None, role="auditor", **how) is PermissionDenied
    assert owner.open(None, role="importer", **how).instance == granted.instance
