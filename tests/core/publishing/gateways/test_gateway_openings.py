"""Openings for the clients of gateways: what a token does at the owner, and which session ends."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import (
    ModeMismatch,
    OncelogError,
    PermissionDenied,
    ProducerFenced,
    SessionEnded,
    SessionSuperseded,
)
from oncelog.core.formats.client_token import check_of, decode_token, token_of
from oncelog.core.formats.epoched_ids import last_of
from oncelog.core.formats.opening import ClientToken, GatewayClient, Granted, OnConflict, ProducerInstance
from oncelog.core.ids import Generation, InstanceId, ProducerId
from oncelog.core.topic_events.effects import EndSession
from oncelog.core.topic_events.events import OpeningAbandoned, SessionClosed
from tests.core.builders import CONTIGUOUS, EPOCHED, PID, TOPIC, received, sequence
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import READ_TOPIC, Owner, World

#: the halves of sessions of four gateways
W, X, Y, Z = (InstanceId(letter * 16) for letter in (b"w", b"x", b"y", b"z"))


def client(epoch: int | None, token: int = 0) -> GatewayClient:
    return GatewayClient(epoch, decode_token(token) if token else None)


def first(owner: Owner, epoch: int | None = 0) -> tuple[Granted, int]:
    """A client opens its producer for the first time, through the gateway X. Returns the grant, and its token."""
    granted = owner.open("p", client=client(epoch), instance_id=X, on_conflict=OnConflict.REFUSE)
    return granted, token_of(TOPIC, granted.instance)


def again(owner: Owner, token: int, epoch: int | None, gateway: InstanceId, *hold: object) -> int:
    """It comes back through this gateway. Returns the call."""
    how = {"client": client(epoch, token), "instance_id": gateway, "on_conflict": OnConflict.REFUSE}
    return owner.ask("p", *hold, **how)  # type: ignore[arg-type]


def came_back(owner: Owner, token: int, epoch: int | None, gateway: InstanceId) -> Granted:
    granted = owner.answers.get(again(owner, token, epoch, gateway))
    assert isinstance(granted, Granted), granted
    return granted


def refusal(owner: Owner, call: int) -> OncelogError:
    result = owner.answers.get(call)
    assert isinstance(result, OncelogError), result
    return result


def ends(owner: Owner) -> list[tuple[int, type[OncelogError]]]:
    return [(end.session, type(end.error)) for end in owner.emitted(EndSession)]


def entries(world: World) -> int:
    return sum(len(world.entries_of(link.ledger_id)) for link in world.links)


# --- the token is current ---------------------------------------------------------------------------------------------


@pytest.mark.hazard("gateway-opens-anew")
def test_client_with_its_token_goes_on_as_the_same_instance() -> None:
    """The same producer id and generation, in a new session, and no entry in the log: a client that reconnects a
    thousand times writes nothing. The former session ends as superseded."""
    world, owner = serving()
    granted, token = first(owner, epoch=0)
    before = entries(world)
    resumed = came_back(owner, token, 1, Y)
    assert resumed.instance == granted.instance
    assert resumed.session > granted.session
    assert ends(owner) == [(granted.session, SessionSuperseded)]
    assert entries(world) == before


@pytest.mark.hazard("gateways-hold-one-producer")
def test_superseded_session_sends_nothing_more() -> None:
    """The first gateway was paused with batches in its buffers. They arrive late, and are dropped."""
    _, owner = serving()
    granted, token = first(owner)
    resumed = came_back(owner, token, 1, Y)
    owner.send(granted.session, received(7, [5]))
    owner.send(resumed.session, received(8, [0]))
    owner.run()
    assert [answer.request for answer in owner.batches] == [8]


@pytest.mark.hazard("gateways-hold-one-producer")
def test_last_sequence_id_is_told_when_writes_in_flight_have_settled() -> None:
    """What the former session has sent is decided first: the client would send it again under new ids."""
    _, owner = serving()
    granted, token = first(owner)
    owner.send(granted.session, received(1, [0, 1]))
    call = again(owner, token, 1, Y, SendAdds)
    assert call not in owner.answers
    assert ends(owner) == [(granted.session, SessionSuperseded)]
    owner.send(granted.session, received(2, [2]))  # too late
    owner.run()
    resumed = owner.answers[call]
    assert isinstance(resumed, Granted)
    assert (resumed.instance, resumed.last_sequence_id, resumed.final) == (granted.instance, 1, True)


def test_name_is_not_given_away_while_writes_settle() -> None:
    """An opening without a token waits for the outcome, and is then asked about in vain."""
    _, owner = serving()
    granted, token = first(owner)
    owner.send(granted.session, received(1, [0]))
    call = again(owner, token, 1, Y, SendAdds)
    other = owner.ask("p", SendAdds, instance_id=Z, on_conflict=OnConflict.REFUSE)
    owner.run()
    resumed = owner.answers[call]
    assert isinstance(resumed, Granted)
    assert resumed.instance == granted.instance
    assert other not in owner.answers


def test_withdrawn_opening_that_waits_for_writes_frees_the_name() -> None:
    """The client is gone. Its former session is, too."""
    _, owner = serving()
    granted, token = first(owner)
    owner.send(granted.session, received(1, [0]))
    call = again(owner, token, 1, Y, SendAdds)
    other = owner.ask("p", SendAdds, instance_id=Z, on_conflict=OnConflict.REFUSE)
    owner.handle(OpeningAbandoned(call))
    owner.run()
    assert call not in owner.answers
    taken = owner.answers[other]
    assert isinstance(taken, Granted)
    assert taken.instance.generation == 2


def test_writes_that_fail_settle_too() -> None:
    """The log returns to its fold, and the client is told what that has."""
    world, owner = serving()
    granted, token = first(owner)
    owner.send(granted.session, received(1, [0]))
    call = again(owner, token, 1, Y, SendAdds)
    world.silent |= set(world.nodes)
    owner.run()
    world.silent.clear()
    owner.tick(10_000).run()
    resumed = owner.answers[call]
    assert isinstance(resumed, Granted)
    assert (resumed.instance, resumed.final) == (granted.instance, True)


def test_repeated_request_is_answered_again() -> None:
    """The answer was lost, and the gateway asks again with the same epoch: it is the same gateway. Its former session
    ends as that of an instance that opened another one, which is no end for the gateway."""
    _, owner = serving()
    _, token = first(owner)
    lost = came_back(owner, token, 1, Y)
    repeated = came_back(owner, token, 1, Y)
    assert ends(owner)[1:] == [(lost.session, SessionEnded)]
    assert repeated.session > lost.session


@pytest.mark.hazard("sessions-end-each-other")
@pytest.mark.parametrize("epoch", [1, 0])
def test_opening_that_is_not_above_the_session_is_fenced(epoch: int) -> None:
    """Lower: a late request of a connection that the client has left. Equal: a twin, such as a fork or a restored
    snapshot. The session goes on."""
    _, owner = serving()
    _, token = first(owner)
    resumed = came_back(owner, token, 1, Y)
    late = refusal(owner, again(owner, token, epoch, Z))
    assert isinstance(late, ProducerFenced)
    assert f"epoch {epoch}" in late.message
    owner.send(resumed.session, received(1, [0]))
    owner.run()
    assert [answer.request for answer in owner.batches] == [1]


@pytest.mark.hazard("deposed-owner-refuses")
def test_late_opening_is_refused_by_the_owner_only() -> None:
    """As every refusal: after the topic record was read again."""
    _, owner = serving()
    _, token = first(owner, epoch=1)
    call = again(owner, token, 1, Y, READ_TOPIC)
    assert call not in owner.answers
    owner.run()
    assert isinstance(refusal(owner, call), ProducerFenced)


def test_client_that_does_not_count_wins_by_coming_later() -> None:
    """Otherwise each of its reconnections would fence itself."""
    _, owner = serving()
    granted, token = first(owner, epoch=None)
    second = came_back(owner, token, None, Y)
    third = came_back(owner, token, None, Z)
    assert second.instance == third.instance == granted.instance
    assert ends(owner) == [(granted.session, SessionSuperseded), (second.session, SessionSuperseded)]


@pytest.mark.hazard("sessions-end-each-other")
@pytest.mark.parametrize("order", [(X, Y), (Y, X)])
def test_gateways_that_resume_after_a_takeover_obey_the_order(order: tuple[InstanceId, InstanceId]) -> None:
    """The notice that X was superseded is lost with the owner. Both resume by themselves, and Y has the client."""
    world, owner = serving()
    granted, token = first(owner, epoch=0)
    came_back(owner, token, 1, Y)
    after = Owner(world, "second").take_over()
    epochs = {X: 0, Y: 1}
    results = {}
    for gateway in order:
        call = after.ask("p", resume=granted.instance, instance_id=gateway, client=client(epochs[gateway]))
        results[gateway] = after.answers[call]
    assert isinstance(results[Y], Granted)
    former = results[X]
    if isinstance(former, Granted):
        assert order == (X, Y)
        assert ends(after) == [(former.session, SessionSuperseded)]
    else:
        assert order == (Y, X)
        assert isinstance(former, ProducerFenced)
        assert ends(after) == []


def test_gateway_resumes_its_own_session_at_the_same_owner() -> None:
    """Its stream broke. The owner has noticed, or not yet; the epoch is the same, and so is the gateway."""
    _, owner = serving()
    granted, _ = first(owner, epoch=3)
    second = owner.open("p", resume=granted.instance, instance_id=X, client=client(3))
    owner.handle(SessionClosed(second.session, keeps_name=True))
    third = owner.open("p", resume=granted.instance, instance_id=X, client=client(3))
    assert second.instance == third.instance == granted.instance
    assert ends(owner) == [(granted.session, SessionEnded)]


def test_gateway_may_present_what_it_was_granted() -> None:
    """After UnknownProducer it opens by name and presents the instance: the same order applies."""
    _, owner = serving()
    granted, token = first(owner, epoch=0)
    came_back(owner, token, 1, Y)
    call = owner.ask("p", present=granted.instance, instance_id=X, client=client(0))
    assert isinstance(refusal(owner, call), ProducerFenced)


def test_repeated_first_request_does_not_end_a_later_session() -> None:
    """The grant of X answered it. The client has come back through Y since, and a repeat of X arrives late."""
    _, owner = serving()
    _, token = first(owner, epoch=0)
    came_back(owner, token, 1, Y)
    call = owner.ask("p", instance_id=X, client=client(0), on_conflict=OnConflict.REFUSE)
    assert isinstance(refusal(owner, call), ProducerFenced)
    assert len(ends(owner)) == 1


# --- the token is not current -----------------------------------------------------------------------------------------


@pytest.mark.hazard("zombie-takes-its-name-back")
def test_older_generation_is_fenced() -> None:
    """A newer instance has taken the name. The zombie wakes up, and its epoch, however high, does not help."""
    _, owner = serving()
    _, token = first(owner)
    owner.open("p", client=client(0), instance_id=Y, on_conflict=OnConflict.FENCE)
    fenced = refusal(owner, again(owner, token, 99, Z))
    assert isinstance(fenced, ProducerFenced)
    assert fenced.details["current"] == 2
    assert ends(owner)[0][1] is ProducerFenced


def test_token_waits_for_a_grant_in_flight() -> None:
    """If the grant fails, the token is current."""
    world, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session))
    owner.ask("p", SendAdds, instance_id=Y)
    call = again(owner, token, 1, Z, SendAdds)
    assert call not in owner.answers
    world.silent |= set(world.nodes)
    owner.run()
    world.silent.clear()
    owner.tick(10_000).run()
    resumed = owner.answers[call]
    assert isinstance(resumed, Granted)
    assert resumed.instance == granted.instance


@pytest.mark.parametrize("known", [True, False])
def test_token_of_another_topic_or_producer_counts_as_none(known: bool) -> None:
    """The topic was made again, or the name has expired. The client is a new instance, and learns what is stored."""
    _, owner = serving()
    if known:
        granted = owner.open("p", instance_id=W)
        owner.send(granted.session, received(1, [0, 1, 2]))
        owner.run()
        owner.handle(SessionClosed(granted.session))
    of_another = token_of(TOPIC, ProducerInstance(ProducerId(PID + 5), Generation(9)))
    fresh = came_back(owner, of_another, 4, Y)
    assert (fresh.instance.generation, fresh.last_sequence_id) == ((2, 2) if known else (1, -1))
    assert came_back(owner, token_of(TOPIC, fresh.instance), 5, Z).instance == fresh.instance


def test_newer_generation_than_the_owner_knows_needs_proof_of_ownership() -> None:
    """This owner may be deposed. The record names it still, so the log was restored: a new instance."""
    world, owner = serving()
    granted, _ = first(owner)
    owner.handle(SessionClosed(granted.session))
    newer = ClientToken(Generation(7), check_of(TOPIC, granted.instance.producer_id))
    before = entries(world)
    call = owner.ask("p", READ_TOPIC, client=GatewayClient(1, newer), instance_id=Y)
    assert (entries(world), call in owner.answers) == (before, False)
    owner.run()
    fresh = owner.answers[call]
    assert isinstance(fresh, Granted)
    assert fresh.instance.generation == 2


def test_newer_generation_is_no_proof_at_a_deposed_owner() -> None:
    """Another owner has granted it, and the request is sent there."""
    world, owner = serving()
    granted, _ = first(owner)
    newer = ClientToken(Generation(2), check_of(TOPIC, granted.instance.producer_id))
    successor = Owner(world, "second").take_over()
    assert successor.open("p", instance_id=Z).instance.generation == 2
    call = owner.ask("p", client=GatewayClient(1, newer), instance_id=Y)
    assert refusal(owner, call).code == "not_owner"


# --- no token, and the same instance id at each gateway -------------------------------------------------------------


def of_kafka(epoch: int, *hold: object, mark: int = -1) -> dict[str, object]:
    """What each gateway opens a client of Kafka with: the instance id stands for the client, the epoch for the
    opening."""
    return {
        "mode": EPOCHED, "client": client(epoch), "instance_id": X, "on_conflict": OnConflict.FENCE,
        "initial_mark": sequence(mark),
    }  # fmt: skip


@pytest.mark.hazard("two-gateways-hold-one-client")
@pytest.mark.parametrize("epoch", [1, 9])
def test_later_opening_of_one_instance_ends_the_former_without_an_entry(epoch: int) -> None:
    """Whatever epoch it has: clocks of gateways differ. The former gateway never opens it again."""
    world, owner = serving()
    granted = owner.open("kafka/7", **of_kafka(5))
    before = entries(world)
    later = owner.open("kafka/7", **of_kafka(epoch))
    assert later.instance == granted.instance
    assert ends(owner) == [(granted.session, SessionSuperseded)]
    assert entries(world) == before
    owner.send(granted.session, received(7, [0]))
    owner.send(later.session, received(8, [0]))
    owner.run()
    assert [answer.request for answer in owner.batches] == [8]


@pytest.mark.hazard("two-gateways-hold-one-client")
def test_later_opening_of_one_instance_is_told_what_has_settled() -> None:
    """The mark that the next number is read against."""
    _, owner = serving()
    granted = owner.open("kafka/7", **of_kafka(1))
    owner.send(granted.session, received(1, [0, 1]))
    call = owner.ask("kafka/7", SendAdds, **of_kafka(2))
    assert call not in owner.answers
    assert ends(owner) == [(granted.session, SessionSuperseded)]
    owner.run()
    later = owner.answers[call]
    assert isinstance(later, Granted)
    assert (later.instance, later.last_sequence_id, later.final) == (granted.instance, 1, True)


def test_epoch_that_was_forgotten_is_closed_by_the_first_mark() -> None:
    """Only a new name takes it."""
    _, owner = serving()
    granted = owner.open("kafka/7", **of_kafka(1, mark=last_of(3)))
    assert granted.last_sequence_id == last_of(3)
    owner.send(granted.session, received(1, [last_of(3) + 1]))
    owner.run()
    assert owner.open("kafka/7", **of_kafka(2, mark=last_of(9))).last_sequence_id == last_of(3) + 1


# --- who may --------------------------------------------------------------------------------------------------------


def test_token_of_another_role_is_refused() -> None:
    """Names belong to roles; who knows a token needs the role, too."""
    _, owner = serving()
    granted = owner.open("p", role="importer", takes_any_name=False, client=client(0), instance_id=X)
    how = {"client": client(1, token_of(TOPIC, granted.instance)), "instance_id": Y, "takes_any_name": False}
    assert isinstance(refusal(owner, owner.ask("p", role="auditor", **how)), PermissionDenied)
    assert owner.open("p", role="importer", **how).instance == granted.instance


def test_contiguous_name_is_refused() -> None:
    """Clients of gateways count as their protocol does."""
    _, owner = serving()
    granted = owner.open("p", mode=CONTIGUOUS, instance_id=X)
    assert isinstance(refusal(owner, again(owner, token_of(TOPIC, granted.instance), 1, Y)), ModeMismatch)


def test_ordinary_instance_is_told_by_its_instance_id_alone() -> None:
    """Without a client of a gateway nothing has changed: another instance id does not resume."""
    _, owner = serving()
    granted = owner.open("p", instance_id=X)
    call = owner.ask("p", resume=granted.instance, instance_id=Y)
    assert isinstance(refusal(owner, call), ProducerFenced)


def test_next_owner_keeps_the_order_by_what_gateways_present() -> None:
    """A token is proved by the log alone: the next owner knows no session."""
    world, owner = serving()
    granted, token = first(owner)
    after = Owner(world, "second").take_over()
    resumed = came_back(after, token, 1, Y)
    assert resumed.instance == granted.instance
    assert ends(after) == []
