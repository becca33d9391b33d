"""A name that goes on here behind what another cluster has stored of it."""

import pytest

from tests.core.builders import received
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner


@pytest.mark.hazard("producer-fails-over")
def test_initial_mark_of_a_new_name_counts_as_stored() -> None:
    """What it has stored in another cluster, and sends again, is not stored; what that cluster lost is. Only of a new
    name, and also at the next owner."""
    world, owner = serving()
    granted = owner.open(initial_mark=99)
    assert (granted.instance.generation, granted.last_sequence_id) == (1, 99)
    assert owner.core.serving is not None
    stored = owner.core.serving.log.table.state
    owner.send(granted.session, received(1, [7, 99]))
    owner.run()
    assert stored.next_index == 0
    owner.send(granted.session, received(2, [100]))
    owner.run()
    assert stored.next_index == 1
    assert owner.open(initial_mark=200).last_sequence_id == 100
    assert Owner(world, "o2").take_over().open().last_sequence_id == 100
