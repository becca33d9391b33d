"""Requests to open a producer on a topic that does not serve: the core decides when clients get the cause."""

from oncelog.core.errors import NotEnoughStorageNodes
from oncelog.core.topic_events.effects import ExplainDelay
from oncelog.core.topic_events.events import OpeningsDelayed
from tests.core.topic.topic_world import SETTINGS, WRITE_LEDGER, Owner, World


def test_request_that_waits_too_long_gets_the_cause() -> None:
    """The core decides when, and the shell explains why; until then nothing is answered, and then all requests are."""
    owner = Owner(World(), "o1").take_over(WRITE_LEDGER)
    call = owner.ask("p", WRITE_LEDGER)
    owner.tick().tick(SETTINGS.openings_wait_max_ms - 1)
    assert owner.emitted(ExplainDelay) == []
    owner.tick(1)
    assert len(owner.emitted(ExplainDelay)) == 1
    assert call not in owner.answers
    error = NotEnoughStorageNodes("none is live")
    owner.handle(OpeningsDelayed(error))
    assert owner.answers[call] is error


def test_topic_without_requests_explains_nothing() -> None:
    owner = Owner(World(), "o1").take_over(WRITE_LEDGER)
    owner.tick().tick(SETTINGS.openings_wait_max_ms)
    assert owner.emitted(ExplainDelay) == []


def test_wait_is_counted_from_when_the_topic_stopped_serving() -> None:
    """A request that comes after a long time of serving waits as long as any other."""
    owner = Owner(World(), "o1").take_over()
    owner.tick().tick(10 * SETTINGS.openings_wait_max_ms)
    owner.roll()
    owner.ask("p", WRITE_LEDGER)
    owner.tick().tick(SETTINGS.openings_wait_max_ms - 1)
    assert owner.emitted(ExplainDelay) == []
    owner.tick(1)
    assert len(owner.emitted(ExplainDelay)) == 1
