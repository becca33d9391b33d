"""What a service has noted as events."""

from oncelog.runtime.observing.events import Event, EventFilter, EventKind, EventRing


def noted(ring: EventRing, kind: EventKind) -> list[Event]:
    """Those of one kind, the oldest first."""
    return ring.newest(EventFilter({kind}), limit=1_000)[::-1]
