"""Until when a token is valid, and when its client is asked for the next one."""

from oncelog_doors.core.pulsar.token_life import AskForToken, TokenEnded, TokenLife


def test_client_is_asked_30_s_before_the_end() -> None:
    """Once; a later token is a new start."""
    life = TokenLife(0, 100_000, can_refresh=True)
    assert (life.next_ms, life.tick(69_999)) == (70_000, [])
    assert life.tick(70_000) == [AskForToken()]
    asked = [life.asked]
    assert (life.next_ms, life.tick(80_000)) == (100_000, [])
    life.answered(80_000, 300_000)
    assert [*asked, life.asked] == [True, False]
    assert (life.next_ms, life.tick(100_000)) == (270_000, [])


def test_connection_is_closed_at_the_end_without_an_answer() -> None:
    """Also if the client could not be asked."""
    for can_refresh in (True, False):
        life = TokenLife(0, 100_000, can_refresh=can_refresh)
        assert life.tick(75_000) == ([AskForToken()] if can_refresh else [])
        assert (life.next_ms, life.tick(99_999)) == (100_000, [])
        assert life.tick(100_000) == [TokenEnded()]


def test_client_without_a_later_token_is_asked_once() -> None:
    """It would be asked again and again until the end."""
    life = TokenLife(0, 100_000, can_refresh=True)
    life.tick(70_000)
    life.answered(70_100, 100_000)
    assert life.next_ms == 100_000
    assert life.tick(90_000) == []


def test_short_token_is_asked_for_after_half_of_its_time() -> None:
    """Not at once: such a client would be asked without a pause."""
    life = TokenLife(0, 10_000, can_refresh=True)
    assert life.next_ms == 5_000
    life.tick(5_000)
    life.answered(5_000, 15_000)
    assert life.next_ms == 10_000


def test_earlier_end_does_not_shorten_what_was_proved() -> None:
    """The former token is as valid as before."""
    life = TokenLife(0, 100_000, can_refresh=True)
    life.tick(70_000)
    life.answered(70_000, 80_000)
    assert life.next_ms == 100_000
