"""Many producers that are opened at once."""

import pytest

from oncelog.core.formats.opening import Granted
from oncelog.core.ids import ProducerId
from oncelog.core.publishing.opening_queue import Opening
from oncelog.core.publishing.openings import Openings
from oncelog.core.topic_events.effects import AllocateProducerId
from oncelog.core.topic_events.events import ProducerIdAllocated
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
