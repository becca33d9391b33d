"""Whether a client lives, and who keeps a name."""

import pytest

from oncelog_doors.core.pulsar.liveness import Drop, Liveness, SayAlive, WritePing


def test_idle_connection_is_pinged_and_closed_after_a_minute() -> None:
    """Any byte begins the time again."""
    liveness = Liveness(0)
    assert liveness.next_ms == 30_000
    assert liveness.tick(29_999) == []
    assert liveness.tick(30_000) == [WritePing()]
    assert liveness.tick(30_001) == []
    assert liveness.next_ms == 60_000
    assert liveness.heard(59_000) == []
    assert liveness.tick(60_000) == []
    assert liveness.next_ms == 89_000
    assert liveness.tick(89_000) == [WritePing()]
    [drop] = liveness.tick(119_000)
    assert isinstance(drop, Drop)


@pytest.mark.hazard("half-open-holder")
def test_holder_that_does_not_answer_is_dropped_after_5_s() -> None:
    """Its pod is gone and TCP has not noticed; the new pod waits for the name."""
    liveness = Liveness(0)
    assert liveness.wanted(10_000) == [WritePing()]
    assert liveness.next_ms == 15_000
    assert liveness.tick(14_999) == []
    [drop] = liveness.tick(15_000)
    assert isinstance(drop, Drop)


def test_any_byte_keeps_the_name() -> None:
    """Once for all that want it meanwhile, and the next request pings again."""
    liveness = Liveness(0)
    assert liveness.wanted(10_000) == [WritePing()]
    assert liveness.wanted(11_000) == []
    assert liveness.heard(12_000) == [SayAlive()]
    assert liveness.tick(15_000) == []
    assert liveness.wanted(16_000) == [WritePing()]


@pytest.mark.hazard("name-lost-behind-unread-sends")
def test_client_that_is_not_read_counts_as_alive() -> None:
    """Its PONG lies behind SENDs that the door does not read."""
    liveness = Liveness(0)
    liveness.reading(False, 1000)
    assert liveness.wanted(2000) == [SayAlive()]
    assert liveness.tick(100_000) == []
    liveness.reading(True, 100_000)
    assert liveness.tick(129_999) == []
    assert liveness.tick(130_000) == [WritePing()]


@pytest.mark.hazard("name-lost-behind-unread-sends")
def test_reading_that_stops_answers_what_is_wanted() -> None:
    """The answer to the PING may be among the bytes that are not read."""
    liveness = Liveness(0)
    liveness.wanted(1000)
    assert liveness.reading(False, 2000) == [SayAlive()]
    assert liveness.tick(6000) == []
