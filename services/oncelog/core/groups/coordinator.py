"""All groups of one coordinator topic, at the owner of the topic."""

from collections.abc import Mapping

from oncelog.core.groups.events import GroupEffect, GroupEvent
from oncelog.core.ids import Generation


class Coordinator:
    """Lives as long as this owner serves the topic. All times are of one monotonic clock, in ms."""

    def __init__(self, generations: Mapping[str, Generation], now_ms: int) -> None:
        """generations: {group: its durable generation}, of all subscriptions of the topic; at least 1 each."""
        raise NotImplementedError

    def handle(self, event: GroupEvent, now_ms: int) -> list[GroupEffect]:
        """Take one event; return what to do, in any order. Raises InvariantViolated: a bug."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> list[GroupEffect]:
        """End what has run out of time. Call it at `next_due_ms`; earlier or later is harmless: if the call comes more
        than a second late, this process did not run, and no member's session ends because of that."""
        raise NotImplementedError

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` has something to do, unless an event comes first; None: never."""
        raise NotImplementedError
