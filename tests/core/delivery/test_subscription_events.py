"""The events and effects of consumers: what a shell can rely on without looking at a core."""

import dataclasses
from typing import get_args

from oncelog.core.delivery.events import ConsumerEffect, ConsumerEvent


def test_events_and_effects_of_consumers_cannot_be_changed() -> None:
    """They wait in queues and are compared by simulations; a change on the way would be seen by only one side."""
    for kind in (*get_args(ConsumerEvent), *get_args(ConsumerEffect)):
        assert dataclasses.is_dataclass(kind)
        assert vars(kind)["__dataclass_params__"].frozen, kind
        assert "__slots__" in vars(kind), kind
