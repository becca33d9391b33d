"""What happened in this process lately: one statement writes a line into the log, and keeps the event for a look.

    events = EventRing("topic_owner", incarnation)
    events.note(EventKind.TAKEOVER, logger, "topic taken over", topic="public/default/orders", owner_epoch=7)
    events.newest(EventFilter(kinds={"takeover"}, within="public/default"), limit=100)

Rules
- Memory only: the events of a process end with it. What must outlive it is in its log, and in the audit log.
- At most `events_max` events. When they are full, the oldest event of the most frequent kind goes, so thousands of
  takeovers push no lost copy out. Refusals have a tenth.
- An event is kept at every log level.
- `repeats`: of equal events within REPEATED_MS only the first is logged and listed, with the number of all of them, so
  what a client can cause again and again fills neither the log nor the list.
- On the event loop only. Payloads and tokens are never fields.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

EVENTS_MAX = 1_000
REPEATED_MS = 60_000
#: Refusals have at most this part of the events: anybody can cause them, from many addresses.
REFUSED_PART = 10
#: Of each field that is a text.
TEXT_CHARACTERS_MAX = 500
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class EventKind(StrEnum):
    """What an event is about."""

    TAKEOVER = "takeover"
    TAKEOVER_FAILED = "takeover_failed"
    TOPIC_LEFT = "topic_left"
    LEDGER_FAILED = "ledger_failed"
    FENCING = "fencing"
    EVICTION = "eviction"
    QUOTA = "quota"
    VERIFICATION = "verification"
    OWNER = "owner"
    BALANCE = "balance"
    NODE = "node"
    COPY_LOST = "copy_lost"
    COPY_FOUND = "copy_found"
    REPAIR = "repair"
    POLICY_CHANGED = "policy_changed"
    RIGHTS_CHANGED = "rights_changed"
    ADMINISTRATION = "administration"
    REFUSED = "refused"
    AUDIT_FAILED = "audit_failed"


@dataclass(slots=True)
class Event:
    """number: ascending in its process. at_ms, last_ms: since 1970, of the first and of the last of `count` equal ones.
    topic: full name, or tenant/namespace, or empty. node: incarnation that it is about, or empty."""

    number: int
    at_ms: int
    kind: EventKind
    level: str
    message: str
    topic: str
    node: str
    fields: dict[str, object]
    count: int = 1
    last_ms: int = 0
    #: equal for events that count as one; empty: each is one
    key: str = ""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """kinds: any of them; empty: all. within: a topic with its partitions, or tenant/namespace; empty: all. node: what
    the event is about, or the process that noted it. before: only events with a lower (at_ms, source, number), where
    source is that of their ring."""

    kinds: Collection[str] = ()
    within: str = ""
    node: str = ""
    before: tuple[int, str, int] | None = None

    def takes(self, event: Event, ring: "EventRing") -> bool:
        """ring: the one that has the event."""
        topic, within = event.topic, self.within
        return (
            (self.before is None or (event.at_ms, ring.source, event.number) < self.before)
            and (not self.kinds or event.kind in self.kinds)
            and (not within or topic == within or topic.startswith(f"{within}/") or _is_partition(topic, of=within))
            and (not self.node or self.node in (event.node, ring.name))
        )


@dataclass(slots=True)
class EventRing:
    """The last events of one service. service: topic_owner, log_storage or metadata. name: of this process: its
    incarnation, or its address."""

    service: str
    name: str = ""
    events_max: int = EVENTS_MAX
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    #: tells this ring from that of any other process, also of one that had the same name
    source: str = field(default_factory=lambda: secrets.token_hex(4))
    _events: dict[EventKind, deque[Event]] = field(default_factory=dict)
    _repeated: dict[str, Event] = field(default_factory=dict)
    _number: int = 0

    def note(
        self,
        kind: EventKind,
        logger: logging.Logger | None,
        message: str,
        *,
        level: str = "info",
        topic: str = "",
        node: str = "",
        repeats: bool = False,
        as_one: str = "",
        count: int = 1,
        **fields: object,
    ) -> None:
        """Log the event, and keep it. logger None: it is logged already. message: constant. as_one: those of this kind
        with the same text here are equal, whatever their other fields say. count: how many it stands for."""
        now_ms = self.now_ms()
        key = repr((kind, as_one or (message, topic, node, sorted(fields.items())))) if repeats else ""
        former = self._repeated.get(key)
        if former is not None and now_ms - former.at_ms < REPEATED_MS:
            former.count += count
            former.last_ms = now_ms
            return
        self._number += 1
        event = Event(self._number, now_ms, kind, level, message, topic, node, _cut(fields), count, now_ms, key)
        if repeats:
            self._repeated[key] = event
        self._keep(event)
        if logger is None:
            return
        about = {"topic": topic, "node": node, "count": count if repeats else None}
        shown = {name: value for name, value in about.items() if value} | fields
        logger.log(_LEVELS[level], message, extra={"fields": {"event": kind.value, **shown}}, stacklevel=2)

    def _keep(self, event: Event) -> None:
        self._events.setdefault(event.kind, deque()).append(event)
        refused = self._events.get(EventKind.REFUSED, ())
        if len(refused) > self.events_max // REFUSED_PART:
            self._drop(EventKind.REFUSED)
        elif sum(map(len, self._events.values())) > self.events_max:
            self._drop(max(self._events, key=lambda kind: len(self._events[kind])))

    def _drop(self, kind: EventKind) -> None:
        """The oldest one of this kind."""
        gone = self._events[kind].popleft()
        if self._repeated.get(gone.key) is gone:
            del self._repeated[gone.key]

    def newest(self, wanted: EventFilter, *, limit: int) -> list[Event]:
        """The newest events that the filter takes, the newest first."""
        found = [event for events in self._events.values() for event in events if wanted.takes(event, self)]
        found.sort(key=lambda event: (event.at_ms, event.number), reverse=True)
        return found[:limit]


def _is_partition(topic: str, *, of: str) -> bool:
    """A namespace may be named like a partition, and has none (of: tenant/namespace)."""
    prefix = f"{of}-partition-"
    return of.count("/") == 2 and topic.startswith(prefix) and topic[len(prefix) :].isdecimal()


def _cut(fields: dict[str, object]) -> dict[str, object]:
    return {
        name: value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }
