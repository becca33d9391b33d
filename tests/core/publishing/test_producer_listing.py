"""Pages of producers, for operators: complete, bounded, and without a change of what is kept."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.formats.opening import Granted
from oncelog.core.ids import InstanceId
from oncelog.core.policies.producer_lifetimes import lease_ms
from oncelog.core.publishing.openings import Openings
from oncelog.core.publishing.producer_listing import ListedProducer, ProducerFilter, page_of, producer_of
from oncelog.core.topic_events.events import SessionClosed
from tests.core.builders import CONTIGUOUS, received
from tests.core.publishing.expiry.test_expiry import leased
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner

ALL = ProducerFilter()


def openings_of(owner: Owner) -> Openings:
    assert owner.core.serving is not None
    return owner.core.serving.openings


def many(count: int) -> Owner:
    """Producers `p 1` to `p COUNT`, all idle."""
    _, owner = serving()
    for number in range(1, count + 1):
        session = owner.open(f"p {number}")
        owner.handle(SessionClosed(session.session))
    openings_of(owner).table.state.producers.make_idle(before_ms=1 << 60)
    return owner


def listed(owner: Owner, wanted: ProducerFilter = ALL, *, limit: int = 100, examined_max: int = 7) -> list[str]:
    """The names of all pages."""
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        page = page_of(
            openings_of(owner), wanted, after=after, limit=limit, now_ms=owner.now_ms, examined_max=examined_max
        )
        assert len(page.producers) <= limit
        names += [each.name for each in page.producers]
        assert page.next_after is None or page.next_after > after, "the list does not go on"
        after = page.next_after
    return names


@pytest.mark.parametrize(("limit", "examined_max"), [(1, 100), (5, 2), (5, 5), (20, 7), (100, 100)])
def test_pages_have_each_producer_once_in_the_order_of_ids(limit: int, examined_max: int) -> None:
    owner = many(20)
    expected = [f"p {number}" for number in range(1, 21)]
    assert listed(owner, limit=limit, examined_max=examined_max) == expected


def test_last_page_says_that_it_is_the_last_one() -> None:
    """A caller that gets exactly all producers asks no second time."""
    owner = many(5)
    assert page_of(openings_of(owner), ALL, after=0, limit=5, now_ms=0).next_after is None
    assert page_of(openings_of(owner), ALL, after=0, limit=4, now_ms=0).next_after == 4
    assert page_of(openings_of(owner), ALL, after=5, limit=4, now_ms=0) == ([], None)


def test_producers_that_come_while_pages_are_read_are_listed_too() -> None:
    """After the ids were put in order once, new ones find their place."""
    owner = many(5)
    first = page_of(openings_of(owner), ALL, after=0, limit=3, now_ms=0)
    owner.open("late")
    rest = page_of(openings_of(owner), ALL, after=first.next_after or 0, limit=10, now_ms=0)
    assert [each.name for each in rest.producers] == ["p 4", "p 5", "late"]


def test_looking_at_a_page_makes_no_idle_producer_active() -> None:
    """A list of all producers must not load them into memory."""
    owner = many(10)
    producers = openings_of(owner).table.state.producers
    assert len(listed(owner)) == 10
    assert not producers._active
    producers.check_invariants()


def test_one_call_looks_at_a_bounded_number_of_producers() -> None:
    """Also where the filter leaves none of them: the page is empty, and names where the next one begins."""
    owner = many(10)
    page = page_of(openings_of(owner), ProducerFilter("other"), after=0, limit=5, now_ms=0, examined_max=4)
    assert page == ([], 4)
    assert listed(owner, ProducerFilter("other"), examined_max=4) == []


def test_filters() -> None:
    """Each alone, and all of them together."""
    owner = many(3)
    owner.open("q here", role="importer", peer="10.0.0.1:5000")
    lease = leased(owner, lifetime_ms=lease_ms(60_000))
    owner.now_ms += 5_000
    owner.open("q later")
    assert listed(owner, ProducerFilter("q ")) == ["q here", "q later"]
    assert listed(owner, ProducerFilter(role="importer")) == ["q here"]
    assert listed(owner, ProducerFilter(connected=True)) == ["q here", "q later"]
    assert listed(owner, ProducerFilter(connected=False)) == ["p 1", "p 2", "p 3", lease.name]
    assert listed(owner, ProducerFilter(idle_ms=5_000, connected=True)) == ["q here"]
    assert listed(owner, ProducerFilter(expires_ms=59_000)) == []
    assert listed(owner, ProducerFilter(expires_ms=lease.expires_in_ms)) == [lease.name]
    assert listed(owner, ProducerFilter("q ", role="", connected=True, idle_ms=0)) == ["q later"]


def one(owner: Owner, granted: Granted) -> ListedProducer:
    found = producer_of(openings_of(owner), granted.instance.producer_id, now_ms=owner.now_ms)
    assert found is not None
    return found


def test_producer_is_shown_with_its_session_marks_and_verdicts() -> None:
    """Duplicates, stale and unverified messages of this producer alone."""
    _, owner = serving()
    granted = owner.open("p", peer="10.0.0.1:5000", role="importer")
    other = owner.open("q")
    owner.send(granted.session, received(1, [0, 4]))
    owner.run()
    owner.send(granted.session, received(2, [0, 2, 4, 5]))
    owner.run()
    shown = one(owner, granted)
    assert (shown.connected, shown.connected_from, shown.role) == (True, "10.0.0.1:5000", "importer")
    assert (shown.duplicates, shown.stale, shown.unverified) == (2, 1, 0)
    assert (shown.accepted, shown.persisted, shown.expires_ms) == (5, 5, None)
    assert shown.memory_bytes > 0
    assert (one(owner, other).duplicates, one(owner, other).connected_from) == (0, "")
    owner.handle(SessionClosed(granted.session))
    shown = one(owner, granted)
    assert (shown.connected, shown.connected_from, shown.duplicates) == (False, "", 2)


def test_accepted_is_ahead_of_persisted_while_a_write_is_in_flight() -> None:
    _, owner = serving()
    granted = owner.open("p", mode=CONTIGUOUS)
    owner.send(granted.session, received(1, [0]))
    assert (one(owner, granted).accepted, one(owner, granted).persisted) == (0, -1)
    owner.run()
    assert (one(owner, granted).accepted, one(owner, granted).persisted) == (0, 0)


def test_client_that_asked_again_is_shown_with_its_new_address() -> None:
    """The answer to the first request was lost with its connection, while the grant was being written."""
    _, owner = serving()
    instance = InstanceId(b"x" * 16)
    owner.ask("p", SendAdds, instance_id=instance, peer="10.0.0.1:5000")
    again = owner.open("p", instance_id=instance, peer="10.0.0.1:5001")
    assert one(owner, again).connected_from == "10.0.0.1:5001"


def test_unknown_producer_is_none() -> None:
    _, owner = serving()
    assert producer_of(openings_of(owner), 7, now_ms=0) is None  # type: ignore[arg-type]
