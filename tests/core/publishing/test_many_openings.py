"""Many producers that are opened at once."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.formats.opening import Granted, Lease, Leased
from oncelog.core.ids import InstanceId, ProducerId
from oncelog.core.policies.producer_lifetimes import LEASE_MS_MIN
from oncelog.core.publishing.opening_queue import Opening
from oncelog.core.publishing.openings import Openings
from oncelog.core.topic_events.effects import AllocateProducerId
from oncelog.core.topic_events.events import ProducerIdAllocated
from tests.core.builders import CONTIGUOUS
from tests.core.topic.test_topic import serving


def test_grant_retries_only_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each durable grant tried every request that waits: 1,000 new names at once cost 500,000 tries."""
    tried = 0
    open_one = Openings._open

    def counted(openings: Openings, opening: Opening) -> None:
        nonlocal tried
        tried += 1
        open_one(openings, opening)

    monkeypatch.setattr(Openings, "_open", counted)
    _, owner = serving()
    calls = [owner.ask(f"name-{number}", AllocateProducerId) for number in range(200)]
    for number in range(1, 201):
        owner.handle(ProducerIdAllocated(number, ProducerId(number)))
        owner.run(AllocateProducerId)
    assert {type(owner.answers[call]) for call in calls} == {Granted}
    assert tried <= 3 * len(calls)


def test_leases_of_one_id_at_once_are_all_answered() -> None:
    """Each waits until the generation before it is durable, and is tried again then: those behind the first one were
    answered when their clients had given up and asked again."""
    _, owner = serving()
    first = owner.answers[owner.ask(None, mode=CONTIGUOUS, lease=Lease(None, None, LEASE_MS_MIN))]
    assert isinstance(first, Leased)
    pid = first.instance.producer_id
    calls = [
        owner.ask(
            None,
            SendAdds,
            mode=CONTIGUOUS,
            lease=Lease(pid, None, LEASE_MS_MIN),
            instance_id=InstanceId(bytes([number]) * 16),
        )
        for number in range(4)
    ]
    owner.run()
    answers = [owner.answers.get(call) for call in calls]
    assert [each.instance.generation for each in answers if isinstance(each, Leased)] == [2, 3, 4, 5]
