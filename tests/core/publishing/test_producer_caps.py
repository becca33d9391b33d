"""Caps on the producers of a topic and of a namespace: a new one is refused, and none is forgotten."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import LimitReached
from oncelog.core.formats.opening import Granted, Lease, Leased
from oncelog.core.ids import InstanceId, ProducerId
from oncelog.core.policies.producer_caps import ProducerCaps
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.topic_events.events import PoliciesChanged
from tests.core.builders import CONTIGUOUS
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner

X = InstanceId(b"x" * 16)


def capped(caps: ProducerCaps | None) -> Owner:
    _, owner = serving()
    owner.handle(PoliciesChanged(TopicPolicies(caps=caps)))
    return owner


def refused(owner: Owner, name: str | None, **fields: object) -> LimitReached:
    result = owner.answers[owner.ask(name, **fields)]
    assert isinstance(result, LimitReached), result
    return result


@pytest.mark.hazard("mark-evicted-at-a-cap")
def test_full_topic_refuses_new_producers_and_forgets_none() -> None:
    """By name, without one, and by lease. Those that are known open again. The error names the limit and the policy."""
    owner = capped(ProducerCaps(topic=2, namespace=0))
    for name in ("a", "b"):
        owner.open(name)
    for error in (
        refused(owner, "c"),
        refused(owner, None),
        refused(owner, None, mode=CONTIGUOUS, lease=Lease(None, None, 0)),
    ):
        assert error.details == {"field": "producers", "limit": 2}
        for helps in ("maxKnownProducersPerTopic", "producerLeaseExpiry", "producers delete"):
            assert helps in error.message
    assert owner.open("a").instance.generation == 2
    again = owner.answers[owner.ask(None, mode=CONTIGUOUS, lease=Lease(ProducerId(2), None, 0))]
    assert isinstance(again, Leased)
    owner.handle(PoliciesChanged(TopicPolicies(caps=ProducerCaps(topic=1))))
    assert owner.open("b").instance == (2, 3)
    refused(owner, "c")
    owner.handle(PoliciesChanged(TopicPolicies(caps=ProducerCaps(topic=3))))
    owner.open("c")


def test_producers_that_are_being_opened_count() -> None:
    """Thousands of programs may start at once. A repeated request of an opening in flight is the same one."""
    owner = capped(ProducerCaps(topic=2))
    first = owner.ask("a", SendAdds, instance_id=X)
    owner.ask("b", SendAdds)
    again = owner.ask("a", SendAdds, instance_id=X)
    third = owner.ask("c", SendAdds)
    owner.run()
    assert isinstance(owner.answers[again], Granted)
    assert not isinstance(owner.answers[first], Granted)
    assert isinstance(owner.answers[third], LimitReached)


def test_namespace_counts_its_other_topics() -> None:
    """Of this owner."""
    owner = capped(ProducerCaps(topic=0, namespace=5))
    owner.open("a", producers_elsewhere=4)
    assert "maxKnownProducersPerNamespace" in refused(owner, "b", producers_elsewhere=4).message
    owner.open("b", producers_elsewhere=3)


def test_nobody_is_refused_while_policies_are_not_known_or_say_so() -> None:
    """After a takeover ZooKeeper may not answer, and an operator may have raised the caps. 0: no cap."""
    for caps in (None, ProducerCaps(0, 0)):
        capped(caps).open("a", producers_elsewhere=1 << 40)


def test_share_is_the_higher_one() -> None:
    """1: nothing new is opened."""
    assert ProducerCaps(10, 100).share(5, 80) == 0.8
    assert ProducerCaps(10, 0).share(10, 80) == 1.0
    assert ProducerCaps(0, 0).share(10, 80) == 0.0
