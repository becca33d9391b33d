"""Names that clients of gateways hold while others want them: who is asked, who waits, and for how long."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import ProducerBusy, ProducerFenced
from oncelog.core.formats.client_token import token_of
from oncelog.core.formats.opening import GatewayClient, Granted, OnConflict, ProducerOpening
from oncelog.core.ids import InstanceId, SessionNumber
from oncelog.core.publishing.held_names import KEPT_MS, NAME_TIMER, WANTED_MS
from oncelog.core.topic_events.effects import EndSession, NameWanted, StartTopicTimer
from oncelog.core.topic_events.events import (
    HigherEpochReported,
    NameHeld,
    OpeningAbandoned,
    SessionClosed,
    TopicTimerFired,
)
from tests.core.builders import TOPIC, received
from tests.core.publishing.gateways.test_gateway_openings import again, came_back, client, first
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import READ_TOPIC, Owner

X, Y, Z = InstanceId(b"x" * 16), InstanceId(b"y" * 16), InstanceId(b"z" * 16)
REFUSE = OnConflict.REFUSE


def want(owner: Owner, gateway: InstanceId = Z, *hold: object) -> int:
    """A new instance wants the name and fences nobody. Returns the call."""
    return owner.ask("p", *hold, instance_id=gateway, client=client(0), on_conflict=REFUSE)  # type: ignore[arg-type]


def timers(owner: Owner, after_ms: int) -> list[str]:
    of_names = (timer for timer in owner.emitted(StartTopicTimer) if timer.key.startswith(NAME_TIMER))
    return [timer.key for timer in of_names if timer.after_ms == after_ms]


def fire(owner: Owner, key: str) -> None:
    owner.handle(TopicTimerFired(key))
    owner.run()


def wanted(owner: Owner) -> list[SessionNumber]:
    return [effect.session for effect in owner.emitted(NameWanted)]


def generation_of(owner: Owner, call: int) -> int:
    granted = owner.answers[call]
    assert isinstance(granted, Granted), granted
    return granted.instance.generation


# --- wanted -----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("half-open-session")
def test_gateway_of_the_holder_is_asked_before_a_refusal() -> None:
    """It says that its client is there: busy, and the session goes on. Each effect happens once."""
    _, owner = serving()
    holder, _ = first(owner)
    call = want(owner)
    assert (wanted(owner), call in owner.answers) == ([holder.session], False)
    owner.handle(NameHeld(holder.session))
    owner.run()
    assert isinstance(owner.answers[call], ProducerBusy)
    assert owner.emitted(EndSession) == []
    assert wanted(owner) == [holder.session]


@pytest.mark.hazard("half-open-session")
def test_client_of_a_gateway_that_says_nothing_is_gone() -> None:
    """After 8 s the name is granted. Its session ends as fenced, and its token is of an older generation."""
    _, owner = serving()
    holder, token = first(owner)
    call = want(owner)
    (timer,) = timers(owner, WANTED_MS)
    fire(owner, timer)
    assert generation_of(owner, call) == 2
    (end,) = owner.emitted(EndSession)
    assert (end.session, type(end.error)) == (holder.session, ProducerFenced)
    assert isinstance(owner.answers[again(owner, token, 5, Y)], ProducerFenced)


def test_gateway_whose_client_is_gone_closes_the_session() -> None:
    """The opening gets the name at once."""
    _, owner = serving()
    holder, _ = first(owner)
    call = want(owner)
    owner.handle(SessionClosed(holder.session))
    owner.run()
    assert generation_of(owner, call) == 2


def test_all_that_want_a_name_hear_one_answer() -> None:
    """The gateway is asked once. A later opening asks again, because the client may have gone since."""
    _, owner = serving()
    holder, _ = first(owner)
    calls = [want(owner, Y), want(owner, Z)]
    assert wanted(owner) == [holder.session]
    owner.handle(NameHeld(holder.session))
    owner.run()
    assert [type(owner.answers[call]) for call in calls] == [ProducerBusy, ProducerBusy]
    later = want(owner)
    assert (wanted(owner), later in owner.answers) == ([holder.session] * 2, False)


def test_repeated_opening_waits_for_the_same_answer() -> None:
    """Its gateway asks again after 5 s, and the time of the holder does not begin again."""
    _, owner = serving()
    first(owner)
    call = want(owner)
    owner.handle(OpeningAbandoned(call))
    repeated = want(owner)
    (timer,) = timers(owner, WANTED_MS)
    fire(owner, timer)
    assert call not in owner.answers
    assert generation_of(owner, repeated) == 2


def test_silence_of_the_past_proves_nothing() -> None:
    """Nobody waited when the time was over, so the gateway is asked again."""
    _, owner = serving()
    holder, _ = first(owner)
    owner.handle(OpeningAbandoned(want(owner)))
    (timer,) = timers(owner, WANTED_MS)
    fire(owner, timer)
    call = want(owner)
    assert (wanted(owner), call in owner.answers) == ([holder.session] * 2, False)


@pytest.mark.hazard("deposed-owner-refuses")
def test_busy_is_said_by_the_owner_only() -> None:
    """The topic record is read again before."""
    _, owner = serving()
    holder, _ = first(owner)
    call = want(owner)
    owner.handle(NameHeld(holder.session))
    owner.run(READ_TOPIC)
    assert call not in owner.answers
    owner.run()
    assert isinstance(owner.answers[call], ProducerBusy)


def test_holder_that_comes_back_is_asked_in_its_new_session() -> None:
    """What the former gateway would have said counts no more, and neither does its silence."""
    _, owner = serving()
    holder, token = first(owner)
    call = want(owner)
    (timer,) = timers(owner, WANTED_MS)
    resumed = came_back(owner, token, 1, Y)
    assert wanted(owner) == [holder.session, resumed.session]
    fire(owner, timer)
    owner.handle(NameHeld(holder.session))
    owner.run()
    assert call not in owner.answers
    owner.handle(NameHeld(resumed.session))
    owner.run()
    assert isinstance(owner.answers[call], ProducerBusy)


def test_silence_about_a_former_session_does_not_take_the_name() -> None:
    """No ledger is open when the time is over, and the client is back before the opening is tried again."""
    _, owner = serving()
    holder, token = first(owner)
    call = want(owner)
    (timer,) = timers(owner, WANTED_MS)
    owner.roll()
    back, still = client(1, token), client(0)
    owner.handle(ProducerOpening(98, "p", client=back, instance_id=Y, on_conflict=REFUSE))
    owner.handle(OpeningAbandoned(call))
    owner.handle(ProducerOpening(99, "p", client=still, instance_id=Z, on_conflict=REFUSE))
    owner.handle(TopicTimerFired(timer))
    owner.run()
    resumed = owner.answers[98]
    assert isinstance(resumed, Granted)
    assert resumed.instance == holder.instance
    assert (wanted(owner), 99 in owner.answers) == ([holder.session, resumed.session], False)


def test_answer_that_nothing_waits_for_is_ignored() -> None:
    """Of a session that was not asked, or has ended."""
    _, owner = serving()
    holder, _ = first(owner)
    before = len(owner.effects)
    owner.handle(NameHeld(holder.session))
    owner.handle(NameHeld(SessionNumber(99)))
    assert len(owner.effects) == before
    call = want(owner)
    assert call not in owner.answers


def test_opening_that_fences_asks_nobody() -> None:
    """The name is taken at once."""
    _, owner = serving()
    first(owner)
    assert owner.open("p", instance_id=Z, client=client(0), on_conflict=OnConflict.FENCE).instance.generation == 2
    assert wanted(owner) == []


def test_ordinary_holder_is_not_asked() -> None:
    """Its stream is its life."""
    _, owner = serving()
    owner.open("p", instance_id=X)
    assert isinstance(owner.answers[want(owner)], ProducerBusy)
    assert wanted(owner) == []


def test_ordinary_opening_waits_for_the_answer_of_a_gateway() -> None:
    """Whoever wants the name, the holder may be half-open."""
    _, owner = serving()
    holder, _ = first(owner)
    call = owner.ask("p", instance_id=Z, on_conflict=REFUSE)
    assert (wanted(owner), call in owner.answers) == ([holder.session], False)


# --- kept -------------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("name-lost-by-a-restart")
def test_name_of_a_broken_session_is_kept_for_its_token() -> None:
    """A gateway restarts, and a standby polls for the name. The client comes back through another gateway first."""
    _, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    standby = want(owner)
    assert standby not in owner.answers
    resumed = came_back(owner, token, 1, Y)
    assert resumed.instance == granted.instance
    assert wanted(owner) == [resumed.session]
    owner.handle(NameHeld(resumed.session))
    owner.run()
    assert isinstance(owner.answers[standby], ProducerBusy)


def test_kept_name_is_free_after_a_moment() -> None:
    """The client did not come back."""
    _, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    standby = want(owner)
    (timer,) = timers(owner, KEPT_MS)
    fire(owner, timer)
    assert generation_of(owner, standby) == 2
    assert isinstance(owner.answers[again(owner, token, 1, Y)], ProducerFenced)


def test_token_is_good_after_the_moment_if_nobody_took_the_name() -> None:
    """A generation ends by the next one only."""
    _, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    (timer,) = timers(owner, KEPT_MS)
    fire(owner, timer)
    assert came_back(owner, token, 1, Y).instance == granted.instance


@pytest.mark.hazard("sessions-end-each-other")
def test_late_opening_does_not_take_a_kept_name() -> None:
    """A request of an even older connection arrives in that moment: the session that broke was of a later one."""
    _, owner = serving()
    _, token = first(owner, epoch=0)
    second = came_back(owner, token, 5, Y)
    owner.handle(SessionClosed(second.session, keeps_name=True))
    assert isinstance(owner.answers[again(owner, token, 5, Z)], ProducerFenced)
    assert came_back(owner, token, 6, Z).instance == second.instance


def test_name_that_was_given_up_is_free_at_once() -> None:
    """The client has closed its producer."""
    _, owner = serving()
    granted, _ = first(owner)
    owner.handle(SessionClosed(granted.session))
    assert generation_of(owner, want(owner)) == 2
    assert timers(owner, KEPT_MS) == []


def test_name_of_an_ordinary_session_is_never_kept() -> None:
    """Its stream broke: free, as before."""
    _, owner = serving()
    granted = owner.open("p", instance_id=X)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    assert generation_of(owner, want(owner)) == 2
    assert timers(owner, KEPT_MS) == []


def test_kept_name_goes_to_an_opening_that_fences() -> None:
    """It asks for no holder."""
    _, owner = serving()
    granted, _ = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    assert owner.open("p", instance_id=Z).instance.generation == 2


def test_timer_of_an_earlier_break_does_not_free_the_name() -> None:
    """The client came back, and its session broke again."""
    _, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    (early,) = timers(owner, KEPT_MS)
    resumed = came_back(owner, token, 1, Y)
    owner.handle(SessionClosed(resumed.session, keeps_name=True))
    standby = want(owner)
    fire(owner, early)
    assert standby not in owner.answers
    fire(owner, timers(owner, KEPT_MS)[-1])
    assert generation_of(owner, standby) == 2


def test_name_of_a_session_that_a_refused_batch_ends_is_kept() -> None:
    """The gateway opens it again, as it does for every refused batch."""
    _, owner = serving()
    granted, _ = first(owner)
    owner.send(granted.session, received(1, [0], generation=9))
    owner.run()
    assert [end.session for end in owner.emitted(EndSession)] == [granted.session]
    standby = want(owner)
    assert standby not in owner.answers
    assert owner.open("p", resume=granted.instance, instance_id=X, client=client(0)).instance == granted.instance


def test_timer_of_a_former_takeover_frees_no_name() -> None:
    """The owner takes the topic over once more, at the same epoch."""
    _, owner = serving()
    granted, token = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    (early,) = timers(owner, KEPT_MS)
    owner.now_ms = 5
    owner.handle(HigherEpochReported())
    owner.run()
    resumed = came_back(owner, token, 1, Y)
    owner.handle(SessionClosed(resumed.session, keeps_name=True))
    standby = want(owner)
    fire(owner, early)
    assert standby not in owner.answers
    fire(owner, timers(owner, KEPT_MS)[-1])
    assert generation_of(owner, standby) == 2


def test_names_are_held_across_a_roll_of_the_ledger() -> None:
    """No ledger is open for a moment: nothing is granted, and nothing is forgotten."""
    _, owner = serving()
    granted, _ = first(owner)
    owner.handle(SessionClosed(granted.session, keeps_name=True))
    owner.roll()
    standby = want(owner, Z, SendAdds)
    owner.run()
    assert standby not in owner.answers
    (timer,) = timers(owner, KEPT_MS)
    fire(owner, timer)
    assert generation_of(owner, standby) == 2


def test_first_grant_carries_its_client() -> None:
    """A session that a grant in the log began is one of a gateway, too; also if a repeat adopted the grant."""
    _, owner = serving()
    how = {"instance_id": X, "client": GatewayClient(3), "on_conflict": REFUSE}
    owner.ask("p", SendAdds, **how)
    call = owner.ask("p", **how)
    granted = owner.answers[call]
    assert isinstance(granted, Granted)
    assert isinstance(owner.answers[again(owner, token_of(TOPIC, granted.instance), 3, Y)], ProducerFenced)
    assert came_back(owner, token_of(TOPIC, granted.instance), 4, Y).instance == granted.instance
