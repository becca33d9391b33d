"""Opening producers: who is granted, who waits, who is refused, and with what."""

import pytest

from oncelog.core.errors import (
    InvalidArgument,
    ModeMismatch,
    OncelogError,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    UnknownProducer,
)
from oncelog.core.ids import GENERATION_MAX, NO_SEQUENCE, Generation, ProducerId
from oncelog.core.ledger_chain import SendAdds
from oncelog.core.opening import Granted, OnConflict, ProducerInstance
from oncelog.core.openings import AllocateProducerId
from oncelog.core.sessions import EndSession
from oncelog.core.topic_events import ProducerIdAllocated, SessionClosed
from tests.core.builders import CONTIGUOUS, PID, received
from tests.core.test_topic import serving
from tests.core.topic_world import Owner


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


def test_next_open_fences_the_instance_before() -> None:
    """Every older one, from that position of the log on."""
    _, owner = serving()
    first = owner.open()
    second = owner.open()
    assert second.instance == (1, 2)
    (end,) = owner.news(EndSession)
    assert (end.session, type(end.error)) == (first.session, ProducerFenced)
    assert refusal(owner, None, resume=first.instance) is ProducerFenced


def test_last_id_of_a_new_instance_is_settled() -> None:
    """The grant stands behind the writes in flight: when it is durable, so are they. 0 is an id."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    assert owner.open().last_sequence_id == 0


def test_last_id_of_a_resumed_one_is_not_final() -> None:
    """Its writes may still be in flight; it never lowers the client's counter."""
    _world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    call = owner.ask(None, SendAdds, resume=granted.instance)
    again = owner.answers[call]
    assert isinstance(again, Granted)
    assert (again.instance, again.last_sequence_id, again.final) == (granted.instance, NO_SEQUENCE, False)


def test_assigned_name_is_of_the_id() -> None:
    """Globally unique, for the id is; a name that somebody chose already is passed over."""
    _, owner = serving()
    assert owner.open("producer-2").instance.producer_id == 1
    granted = owner.open(None)
    assert granted.name == f"producer-{granted.instance.producer_id}"
    assert granted.instance.producer_id == 3


def test_busy_name_is_refused_to_whoever_asks_not_to_fence() -> None:
    """Connected: busy. Its stream broken: free."""
    _, owner = serving()
    granted = owner.open()
    assert refusal(owner, on_conflict=OnConflict.REFUSE) is ProducerBusy
    owner.handle(SessionClosed(granted.session))
    assert owner.open(on_conflict=OnConflict.REFUSE).instance == (1, 2)


def test_two_who_ask_not_to_fence_get_one_grant() -> None:
    """The second one waits for the first one's grant, and is refused."""
    _, owner = serving()
    first = owner.ask("p", AllocateProducerId, on_conflict=OnConflict.REFUSE)
    second = owner.ask("p", on_conflict=OnConflict.REFUSE)
    assert isinstance(owner.answers[first], Granted)
    assert isinstance(owner.answers[second], ProducerBusy)


def test_two_who_open_a_new_name_bind_it_once() -> None:
    """Both asked for an id; the second one's is wasted, and it fences the first."""
    _, owner = serving()
    calls = [owner.ask("p", AllocateProducerId), owner.ask("p", AllocateProducerId)]
    owner.run()
    granted = [owner.answers[call] for call in calls]
    assert [g.instance for g in granted if isinstance(g, Granted)] == [(1, 1), (1, 2)]


@pytest.mark.parametrize("fields", [{}, {"resume": instance(1)}, {"present": instance(1)}])
def test_other_mode_is_refused(fields: dict[str, object]) -> None:
    """The name is bound to its mode, for a new instance as for the same one."""
    _, owner = serving()
    owner.open()
    assert refusal(owner, "p", **{"mode": CONTIGUOUS, **fields}) is ModeMismatch


def test_unknown_id_is_told_to_open_by_name() -> None:
    """Also one that stands for another name here."""
    _, owner = serving()
    owner.open("p")
    owner.open("q")
    assert refusal(owner, None, resume=instance(1, pid=9)) is UnknownProducer
    assert refusal(owner, "q", resume=instance(1)) is UnknownProducer


def test_living_instance_presents_itself() -> None:
    """By name, with its id and generation: granted as what it is, not as a new one."""
    _, owner = serving()
    granted = owner.open()
    again = owner.open("p", present=granted.instance)
    assert (again.instance, again.final) == (granted.instance, False)


def test_zombie_that_presents_itself_is_fenced() -> None:
    """With a plain open by name it would get the next generation, and win."""
    _, owner = serving()
    zombie = owner.open()
    owner.open()
    assert refusal(owner, present=zombie.instance) is ProducerFenced


def test_presented_instance_that_nobody_knows_is_expired() -> None:
    """Its state is gone, or the name is another producer's by now: presenting again would never end."""
    _, owner = serving()
    assert refusal(owner, present=instance(1)) is ProducerExpired
    owner.open()
    assert refusal(owner, present=instance(1, pid=9)) is ProducerExpired


def test_generation_that_was_never_granted_is_refused() -> None:
    """The record names this owner, so no other can have granted it."""
    _, owner = serving()
    owner.open()
    assert refusal(owner, None, resume=instance(7)) is InvalidArgument


def test_last_generation_is_the_last() -> None:
    """It does not begin anew: an old zombie would be current again."""
    _, owner = serving()
    owner.open()
    assert owner.core.serving is not None
    owner.core.serving.log.table.state.producers[PID].generation = Generation(GENERATION_MAX)
    assert refusal(owner) is InvalidArgument


def test_resume_waits_for_a_grant_in_flight() -> None:
    """If that fails, it is still the current one."""
    _, owner = serving()
    granted = owner.open()
    taker = owner.ask("p", SendAdds)
    call = owner.ask(None, SendAdds, resume=granted.instance)
    assert call not in owner.answers
    owner.run()
    assert isinstance(owner.answers[taker], Granted)
    assert isinstance(owner.answers[call], ProducerFenced)


def test_opening_waits_for_the_next_ledger() -> None:
    """A roll is on: it is granted in the new ledger."""
    world, owner = serving()
    owner.roll()
    call = owner.ask("p")
    assert isinstance(owner.answers[call], Granted)
    assert len(world.record.ledgers) == 2


def test_id_for_an_opening_that_is_gone_is_wasted() -> None:
    """It was answered meanwhile; ids are never given back."""
    _, owner = serving()
    assert owner.handle(ProducerIdAllocated(99, ProducerId(50))) == []
    assert owner.open().instance.producer_id == 1
