"""An operator expires or deletes a producer: by one durable entry, and never one with something in flight."""

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.errors import Conflict, NotFound, OncelogError, ProducerExpired, ProducerFenced, TopicLoading
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.opening import Granted, ProducerInstance
from oncelog.core.formats.producers_aged import ProducersAged, decode_aged
from oncelog.core.ids import Generation, InstanceId, ProducerId
from oncelog.core.publishing.expiry import EXPIRY_TIMER
from oncelog.core.topic_events.effects import EndSession, StartTopicTimer
from oncelog.core.topic_events.events import ProducerRemovalRequested, SessionClosed, TopicTimerFired
from tests.core.builders import CONTIGUOUS, B, C, received
from tests.core.publishing.expiry.test_expiry import LIFETIME, known, lease, leased, nobody_returns
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner, World

X = InstanceId(b"x" * 16)


def ask(owner: Owner, pid: int, *hold: type, call: int = 1, delete: bool = True, force: bool = False) -> None:
    owner.handle(ProducerRemovalRequested(call, ProducerId(pid), "root", delete=delete, force=force))
    owner.run(*hold)


def answers(owner: Owner) -> dict[int, OncelogError | None]:
    return {effect.call: effect.error for effect in owner.emitted(AnswerAdmin)}


def removals(world: World) -> list[ProducersAged]:
    """The entries of the log that let producers expire."""
    found = []
    for link in world.links:
        for _, data in sorted(world.entries_of(link.ledger_id).items()):
            if peek_header(data).kind == EntryKind.PRODUCERS_AGED and (aged := decode_aged(body_of(data))).expired:
                found.append(aged)
    return found


def closed(owner: Owner, name: str = "p", **fields: object) -> Granted:
    """A producer that is not connected."""
    granted = owner.open(name, **fields)
    owner.handle(SessionClosed(granted.session))
    return granted


def test_answer_comes_when_the_entry_is_durable_and_every_later_owner_has_forgotten() -> None:
    """The entry names the operator; no time passes by it."""
    world, owner = serving()
    granted = closed(owner)
    ask(owner, 1, SendAdds)
    assert answers(owner) == {}
    assert known(owner) == {1}
    owner.run()
    assert answers(owner) == {1: None}
    assert removals(world) == [ProducersAged(0, (), (ProducerId(1),), "root")]
    assert known(owner) == set()
    again = owner.open("p")
    assert (again.instance.producer_id, again.last_sequence_id) == (2, -1), "a new producer"
    other = Owner(world, "o2").take_over()
    assert known(other) == {2}
    result = other.answers[other.ask("p", present=granted.instance)]
    assert isinstance(result, ProducerExpired)


def test_connected_producer_is_refused_and_forced_it_is_fenced() -> None:
    world, owner = serving()
    granted = owner.open("p")
    ask(owner, 1)
    assert isinstance(answers(owner)[1], Conflict)
    assert not owner.emitted(EndSession)
    assert not removals(world)
    ask(owner, 1, call=2, force=True)
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (granted.session, ProducerFenced)
    assert answers(owner)[2] is None
    assert known(owner) == set()


def test_forced_removal_waits_for_what_is_in_flight_and_takes_nothing_new() -> None:
    """The message that was sent before is stored; an opening of the name meanwhile gets a new producer."""
    world, owner = serving()
    granted = owner.open("p", mode=CONTIGUOUS)
    owner.send(granted.session, received(1, [0]))
    ask(owner, 1, SendAdds, force=True)
    owner.send(granted.session, received(2, [1]))
    call = owner.ask("p", SendAdds, mode=CONTIGUOUS)
    assert call not in owner.answers
    assert answers(owner) == {}
    owner.run()
    assert answers(owner) == {1: None}
    again = owner.answers[call]
    assert isinstance(again, Granted)
    assert again.instance.producer_id == 2
    assert owner.core.serving is not None
    assert owner.core.serving.log.table.state.next_index == 1
    assert len(removals(world)) == 1


def test_forced_removal_ends_also_a_session_that_begins_meanwhile() -> None:
    """Its grant was in flight: the answer goes out, and the session ends before the entry is written."""
    _, owner = serving()
    call = owner.ask("p", instance_id=X)
    first = owner.answers[call]
    assert isinstance(first, Granted)
    call = owner.ask("p", SendAdds, instance_id=InstanceId(b"y" * 16))
    ask(owner, 1, SendAdds, force=True)
    owner.run()
    second = owner.answers[call]
    assert isinstance(second, Granted)
    ended = {end.session for end in owner.emitted(EndSession)}
    assert {first.session, second.session} <= ended
    assert answers(owner) == {1: None}
    assert known(owner) == set()


def test_repeated_request_is_answered_with_the_first_one_and_later_finds_nothing() -> None:
    """Two operators at once; no second entry, which no owner could fold."""
    world, owner = serving()
    closed(owner)
    ask(owner, 1, SendAdds, call=1)
    ask(owner, 1, SendAdds, call=2)
    owner.run()
    assert answers(owner) == {1: None, 2: None}
    ask(owner, 1, call=3)
    assert isinstance(answers(owner)[3], NotFound)
    assert len(removals(world)) == 1


def test_repeat_never_removes_the_producer_that_took_the_name() -> None:
    """Ids are never given twice."""
    _, owner = serving()
    closed(owner)
    ask(owner, 1)
    owner.open("p")
    ask(owner, 1, call=2, force=True)
    assert isinstance(answers(owner)[2], NotFound)
    assert known(owner) == {2}


def test_only_a_producer_with_a_lifetime_expires() -> None:
    """One that lives for ever is deleted."""
    _, owner = serving()
    closed(owner)
    new = leased(owner)
    ask(owner, 1, delete=False)
    error = answers(owner)[1]
    assert isinstance(error, Conflict)
    assert "delete it" in str(error)
    ask(owner, new.instance.producer_id, call=2, delete=False)
    assert answers(owner)[2] is None
    assert known(owner) == {1}
    assert isinstance(lease(owner, new.instance.producer_id, 1), ProducerExpired)


def test_producer_that_may_come_back_after_a_takeover_is_refused_until_then() -> None:
    """The new owner cannot know who was connected."""
    world, owner = serving()
    closed(owner)
    owner = Owner(world, "o2").take_over()
    ask(owner, 1)
    assert isinstance(answers(owner)[1], Conflict)
    nobody_returns(owner)
    ask(owner, 1, call=2)
    assert answers(owner)[2] is None


def test_failed_write_removes_nothing_and_says_so() -> None:
    """Retriable: the caller asks again, and the producer goes on as if nobody had asked."""
    world, owner = serving()
    closed(owner)
    world.silent = {B, C}
    ask(owner, 1)
    owner.tick(6_000).run()
    owner.tick(6_000).run()
    world.silent = set()
    owner.run()
    assert isinstance(answers(owner)[1], TopicLoading)
    assert known(owner) == {1}
    assert owner.core.serving is not None
    assert not owner.core.serving.log.table.expires(ProducerId(1))
    assert owner.open("p").instance == ProducerInstance(ProducerId(1), Generation(2))


def test_producer_that_an_operator_removes_does_not_expire_a_second_time() -> None:
    """Its time is over while the entry waits for a write: a second entry could not be folded."""
    world, owner = serving()
    new = leased(owner)
    session = owner.open(None, resume=new.instance, mode=CONTIGUOUS, instance_id=X)
    owner.tick()
    owner.run()
    ask(owner, 1, SendAdds, force=True)
    for _ in range(20):
        key = [timer for timer in owner.emitted(StartTopicTimer) if timer.key.startswith(EXPIRY_TIMER)][-1].key
        owner.handle(TopicTimerFired(key))
        owner.run(SendAdds)
    owner.run()
    assert owner.core.serving is not None
    assert owner.core.serving.log.table.state.time_ms > LIFETIME
    assert session.session in {end.session for end in owner.emitted(EndSession)}
    assert [each for aged in removals(world) for each in aged.expired] == [1]
    assert Owner(world, "o2").take_over().core.serving is not None


def test_removal_during_a_roll_follows_when_the_log_opens() -> None:
    """A request that comes while no ledger is open is refused with a retriable error; one that waits goes on."""
    _, owner = serving()
    granted = owner.open("p", mode=CONTIGUOUS)
    owner.send(granted.session, received(1, [0]))
    ask(owner, 1, SendAdds, force=True)
    owner.roll()
    owner.run()
    assert answers(owner) == {1: None}
    assert known(owner) == set()


def test_topic_that_is_not_served_refuses() -> None:
    world, _ = serving()
    other = Owner(world, "o2")
    ask(other, 1)
    assert isinstance(answers(other)[1], TopicLoading)
