"""What operators see of the producers of a topic: one of them, or a page of those that a filter leaves.

Rules
- A page is in the order of producer ids, which are never given twice. So each producer that is there during the whole
  list is in it once, whatever comes and goes meanwhile.
- Looking never changes what is kept: an idle producer stays idle.
- One call looks at a bounded number of producers, so that the owner goes on in between. A page may have fewer producers
  than its limit, or none, and still name where the next one begins.
- Counters begin when this owner takes the topic over. All else is from the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import Generation, ProducerId, SequenceId
from oncelog.core.publishing.generation_history import GenerationRecord, read_history
from oncelog.core.publishing.openings import Openings
from oncelog.core.publishing.producer_state import ProducerState

#: Producers that one call looks at, some milliseconds.
EXAMINED_MAX = 500


@dataclass(frozen=True, slots=True)
class ProducerFilter:
    """Which producers to list: those for which all of it holds. None, and an empty prefix: any.

    idle_ms: no message, opening or renewal for at least so long. expires_ms: it may expire within this time, if it does
    nothing; a producer that lives for ever never does.
    """

    name_prefix: str = ""
    role: str | None = None
    connected: bool | None = None
    idle_ms: int | None = None
    expires_ms: int | None = None


class ListedProducer(NamedTuple):
    """One producer. role: the one that owns the name; empty: none. connected_from: host:port of the client with the
    session; empty: there is none, or it is unknown.

    accepted: the highest sequence id that was handed to the log; persisted: that is durable. idle_ms: since the last
    message, opening or renewal. expires_ms: the least time until it may expire, if it does nothing; None: it lives for
    ever. duplicates, stale, unverified: messages by verdict. memory_bytes: of what is kept of it.
    """

    name: str
    producer_id: ProducerId
    generation: Generation
    role: str
    mode: str
    connected: bool
    connected_from: str
    accepted: SequenceId
    persisted: SequenceId
    last_activity_ms: int
    idle_ms: int
    expires_ms: int | None
    duplicates: int
    stale: int
    unverified: int
    recent_batches_count: int
    recent_floor: SequenceId
    memory_bytes: int


class ProducerPage(NamedTuple):
    """next_after: the next page begins behind this id; None: this was the last one."""

    producers: list[ListedProducer]
    next_after: ProducerId | None


def producer_of(openings: Openings, pid: ProducerId, *, now_ms: int) -> ListedProducer | None:
    """None: the topic has no such producer, or its first grant is not durable yet."""
    state = openings.table.state.producers.peek(pid)
    return None if state is None else _listed(openings, state, now_ms)


def generations_of(openings: Openings, pid: ProducerId) -> list[GenerationRecord]:
    """The last generations of a producer that are known, the oldest first."""
    state = openings.table.state.producers.peek(pid)
    return [] if state is None else read_history(state.history)


def page_of(
    openings: Openings,
    wanted: ProducerFilter,
    *,
    after: int,
    limit: int,
    now_ms: int,
    examined_max: int = EXAMINED_MAX,
) -> ProducerPage:
    """The next producers behind the id `after`, at most `limit`."""
    known, found = openings.table.state.producers, list[ListedProducer]()
    looked_at = known.after(after, examined_max)
    for pid in looked_at:
        if (listed := _if_wanted(openings, pid, wanted, now_ms)) is not None:
            found.append(listed)
            if len(found) == limit:
                return ProducerPage(found, pid if known.after(pid, 1) else None)
    return ProducerPage(found, looked_at[-1] if looked_at and known.after(looked_at[-1], 1) else None)


def _if_wanted(openings: Openings, pid: ProducerId, wanted: ProducerFilter, now_ms: int) -> ListedProducer | None:
    """What is known without the producer's record is looked at first."""
    known = openings.table.state.producers
    if wanted.connected is not None and openings.sessions.connected(pid) is not wanted.connected:
        return None
    if wanted.name_prefix and not (known.name_of(pid) or "").startswith(wanted.name_prefix):
        return None
    if wanted.expires_ms is not None:
        expires_ms = openings.expiry.expires_in_ms(pid)
        if expires_ms is None or expires_ms > wanted.expires_ms:
            return None
    state = known.peek(pid)
    if state is None or (wanted.role is not None and state.role != wanted.role):
        return None
    if wanted.idle_ms is not None and now_ms - state.last_activity_ms < wanted.idle_ms:
        return None
    return _listed(openings, state, now_ms)


def _listed(openings: Openings, state: ProducerState, now_ms: int) -> ListedProducer:
    table, sessions, pid = openings.table, openings.sessions, state.producer_id
    session = sessions.session_of(pid)
    counters: Mapping[str, int] = sessions.counters_of.get(pid, {})
    return ListedProducer(
        name=state.name,
        producer_id=pid,
        generation=state.generation,
        role=state.role,
        mode=state.mode.name.lower(),
        connected=session is not None,
        connected_from=session.peer if session is not None else "",
        accepted=table.accepted_of(pid) if table.in_flight(pid) else state.persisted,
        persisted=state.persisted,
        last_activity_ms=state.last_activity_ms,
        idle_ms=max(0, now_ms - state.last_activity_ms),
        expires_ms=openings.expiry.expires_in_ms(pid),
        duplicates=counters.get("duplicate", 0),
        stale=counters.get("stale_sequence", 0),
        unverified=counters.get("below_mark", 0),
        recent_batches_count=len(state.recent_batches),
        recent_floor=state.recent_floor,
        memory_bytes=table.state.producers.memory_of(pid),
    )
