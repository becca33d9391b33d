"""What a session of HTTP consume knows of its deliveries, and when it ends."""

import random

import pytest

from oncelog.core.errors import InvariantViolated
from oncelog.core.http_consume import session as of_session
from oncelog.core.http_consume.delivery_id import DeliveryId, home_in, home_of, session_id
from oncelog.core.http_consume.session import ConsumeSession, Standing

TIMEOUT_MS = 1_000


def new(window: int = 10) -> ConsumeSession[str]:
    return ConsumeSession(ack_timeout_ms=TIMEOUT_MS, window=window, now_ms=0)


def of(index: int, seek_epoch: int = 0, generation: int = 1, partition: int = -1) -> DeliveryId:
    return DeliveryId(index, seek_epoch, generation, partition)


def ack(session: ConsumeSession[str], delivery: DeliveryId, now_ms: int) -> None:
    """The acknowledgement of an outstanding delivery becomes durable."""
    found = session.find(delivery, now_ms)
    assert found is not None
    session.acknowledged(found)


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", [of(0), of(17, 2, 9), of(17, 2, 9, partition=0), of(1, partition=999)])
def test_id_of_a_delivery_is_read_back(delivery: DeliveryId) -> None:
    assert DeliveryId.parse(str(delivery)) == delivery


@pytest.mark.parametrize(
    "text", ["", "17", "1.2", "1.2.3.4.5", "01.0.1", "1.0.-1", " 1.0.1", "1.0.1\n", "²1.0.1", "9" * 40]
)
def test_other_texts_are_no_delivery(text: str) -> None:
    """A client sends anything. There is one text for each delivery."""
    assert DeliveryId.parse(text) is None


def test_session_names_its_home_and_not_its_address() -> None:
    home = home_of("10.0.0.7", 6650)
    name = session_id(home, bytes(range(16)))
    assert home_in(name) == home != home_of("10.0.0.7", 6651)
    assert "10.0.0.7" not in name
    for other in ("", home, f"{home}-", name + "0", name.upper(), f"../{name}"):
        assert home_in(other) is None


# --- deliveries -------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("foreign-delivery-id")
def test_only_what_this_session_has_given_can_be_acknowledged() -> None:
    """Any other index would be acknowledged unread, and its message lost."""
    session = new()
    session.give(of(5, 1, 2), "five", 0)
    assert session.standing(of(5, 1, 2), 0) is Standing.OUTSTANDING
    for other in (of(6, 1, 2), of(5, 0, 2), of(5, 1, 1), of(5, 1, 2, partition=0)):
        assert session.standing(other, 0) is Standing.UNKNOWN


@pytest.mark.hazard("foreign-delivery-id")
def test_delivery_is_over_with_its_time_out() -> None:
    """Another consumer may have the message by then. The time begins anew when it is given again."""
    session = new()
    session.give(of(1), "first", 0)
    assert session.find(of(1), TIMEOUT_MS - 1) is not None
    assert session.standing(of(1), TIMEOUT_MS) is Standing.UNKNOWN
    session.give(of(1), "second", TIMEOUT_MS)
    found = session.find(of(1), 2 * TIMEOUT_MS - 1)
    assert found is not None
    assert found.receipt == "second"


def test_acknowledged_delivery_stays_acknowledged() -> None:
    """A client that lost the answer asks again. What is remembered is bounded."""
    session = new(window=of_session.REMEMBERED_MAX + 2)
    for index in range(of_session.REMEMBERED_MAX + 1):
        session.give(of(index), "", 0)
        ack(session, of(index), 0)
    assert session.standing(of(1), 99 * TIMEOUT_MS) is Standing.ACKNOWLEDGED
    assert session.standing(of(0), 0) is Standing.UNKNOWN


def test_acknowledgement_that_is_durable_late_counts() -> None:
    """It was asked for in time."""
    session = new()
    session.give(of(1), "", 0)
    found = session.find(of(1), 0)
    assert found is not None
    session.acknowledged(found)
    assert session.standing(of(1), 5 * TIMEOUT_MS) is Standing.ACKNOWLEDGED


def test_returned_delivery_does_not_end_a_newer_one() -> None:
    """The answer to a negative acknowledgement arrives behind the message itself."""
    session = new()
    session.give(of(1), "first", 0)
    first = session.find(of(1), 0)
    assert first is not None
    session.give(of(1), "second", 1)
    session.returned(first)
    assert session.standing(of(1), 1) is Standing.OUTSTANDING


def test_window_bounds_what_is_outstanding() -> None:
    session = new(window=2)
    session.give(of(1), "", 0)
    session.give(of(2), "", 10)
    assert (session.room(10), session.room_at_ms(10)) == (0, TIMEOUT_MS)
    with pytest.raises(InvariantViolated):
        session.give(of(3), "", 10)
    ack(session, of(1), 10)
    assert session.room(10) == 1
    assert session.room(TIMEOUT_MS + 10) == 2


def test_client_that_comes_back_gets_what_was_given_after_its_last_message() -> None:
    """Also if it has acknowledged that one. Everything, if nobody knows it any more."""
    session = new()
    for index in range(4):
        session.give(of(index), "", 0)

    def after(last: DeliveryId | None) -> list[int]:
        return [each.id.index for each in session.given_after(last, 0)]

    assert after(of(1)) == [2, 3]
    ack(session, of(1), 0)
    assert after(of(1)) == [2, 3]
    assert after(of(77)) == after(None) == [0, 2, 3]
    assert [each.id.index for each in session.given_after(None, TIMEOUT_MS)] == []


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("abandoned-http-session")
def test_session_ends_after_its_time_out_without_a_request() -> None:
    """What waits for it in the service has no time-out of its own."""
    session = new()
    assert not session.is_silent(TIMEOUT_MS - 1)
    assert session.is_silent(TIMEOUT_MS)
    session.request_began()
    assert not session.is_silent(50 * TIMEOUT_MS)
    session.request_ended(50 * TIMEOUT_MS)
    assert not session.is_silent(51 * TIMEOUT_MS - 1)
    assert session.is_silent(51 * TIMEOUT_MS)


@pytest.mark.hazard("abandoned-http-session")
def test_stream_whose_client_answers_nothing_does_not_keep_the_session() -> None:
    """A client that vanished without closing its connection would get each message again and again, for many minutes,
    and nobody else would."""
    session = new()
    session.stream_began()
    assert not session.is_silent(20 * TIMEOUT_MS)
    session.give(of(1), "", 20 * TIMEOUT_MS)
    assert not session.is_silent(21 * TIMEOUT_MS - 1)
    session.give(of(2), "", 21 * TIMEOUT_MS - 1)  # given, but nothing was heard
    assert session.is_silent(21 * TIMEOUT_MS)


def test_stream_whose_client_answers_keeps_the_session() -> None:
    session = new()
    session.stream_began()
    session.give(of(1), "", 0)
    session.request_began()
    ack(session, of(1), 900)
    session.request_ended(900)
    assert not session.is_silent(30 * TIMEOUT_MS)
    session.stream_ended(30 * TIMEOUT_MS)
    assert not session.is_silent(31 * TIMEOUT_MS - 1)
    assert session.is_silent(31 * TIMEOUT_MS)


def test_random_walks_keep_the_invariants() -> None:
    """Compared with a table of everything that was given: nothing else is ever outstanding, and what was acknowledged
    never is again unless it is given again."""
    for seed in range(200):
        chance = random.Random(seed)
        session, now_ms, given = new(window=4), 0, dict[DeliveryId, int]()
        for _ in range(60):
            now_ms += chance.choice((0, 0, 1, 300, TIMEOUT_MS))
            delivery = of(chance.randrange(6), chance.randrange(2))
            match chance.randrange(3):
                case 0 if session.room(now_ms) > 0:
                    given = {each: at for each, at in given.items() if each.index != delivery.index}
                    given[delivery] = now_ms
                    session.give(delivery, "", now_ms)
                case 1 if session.find(delivery, now_ms) is not None:
                    ack(session, delivery, now_ms)
                    del given[delivery]
                    assert session.standing(delivery, now_ms) is Standing.ACKNOWLEDGED
                case _:
                    found = session.find(delivery, now_ms)
                    if found is not None:
                        session.returned(found)
                        del given[delivery]
            session.check_invariants()
            alive = {each for each, at in given.items() if at + TIMEOUT_MS > now_ms}
            assert {each.id for each in session.given_after(None, now_ms)} == alive
