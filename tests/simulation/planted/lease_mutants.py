"""Planted bugs of leases and of producers that expire: each takes one rule from the owner or from its snapshots."""

from typing import Any
from weakref import WeakKeyDictionary

from oncelog.core.formats.opening import Lease
from oncelog.core.formats.producers_aged import ProducersAged, Renewal
from oncelog.core.ids import Generation, ProducerId
from oncelog.core.publishing.dedup_state import DedupState, assigned_name
from oncelog.core.publishing.expiry import CONTINUE_MS, ProducerExpiry
from oncelog.core.publishing.log import TopicLog
from oncelog.core.publishing.openings import Openings
from oncelog.core.sdk.producer.opening import SessionOpening
from tests.core.publishing.expiry.test_expiry import test_period_is_an_eighth_of_a_short_lease_also_while_others_are_due
from tests.core.publishing.expiry.test_session_lifetimes import test_session_that_has_begun_counts_for_the_next_owner
from tests.core.sdk.test_session_opening import (
    test_expired_producer_does_not_fence_a_newer_one_that_has_its_name,
    test_expired_producer_gives_its_assigned_name_back,
)
from tests.simulation.planted.planted_bug import Mutant

_aged, _lease, _start_next = Openings._aged, Openings._lease, ProducerExpiry._start_next
_append_aged, _age, _restore = TopicLog.append_aged, ProducerExpiry._age, DedupState.restore
_renewed = ProducerExpiry._renewed


def _issued_again(openings: Openings, entry: Any, aged: ProducersAged) -> None:
    """The ids of expired producers are free for the next new ones."""
    openings.ids.free.extend(aged.expired)
    _aged(openings, entry, aged)


def _next_generation(openings: Openings, opening: Any, lease: Lease) -> Any:
    """A renewal grants the next generation."""
    return _lease(openings, opening, lease._replace(generation=None))


def _held_by_two(openings: Openings, opening: Any, lease: Lease) -> Any:
    """Whoever leases an id gets the generation that its holder has."""
    pid = lease.producer_id
    if pid is None or lease.generation is not None or pid not in openings.table.state.producers:
        return _lease(openings, opening, lease)
    if openings.table.generation_of(pid)[1]:
        openings._leave(opening.event.call)
        openings._answer_lease(opening.event.call, pid)
    return None


def _proof_of_the_next(openings: Openings, call: int, renewal: Any) -> None:
    """A renewal is answered with the generation that is current when it is durable."""
    openings._answer_lease(call, renewal.producer_id)


def _without_an_entry(log: TopicLog, aged: ProducersAged, **named: Any) -> Any:
    """Each owner lets producers expire for itself."""
    for pid in aged.expired:
        log.table.state.producers.remove(pid)
    return _append_aged(log, aged._replace(expired=()), **named)


def _taken_for_new(openings: Openings, opening: Any, lease: Lease) -> Any:
    """An id that the owner does not know is leased from its first generation on."""
    pid = lease.producer_id
    if pid is None or openings.table.knows(pid):
        return _lease(openings, opening, lease)
    openings._grant(opening, assigned_name(pid), pid, Generation(1))
    return None


def _restored_for_ever(state: DedupState, producers: Any) -> None:
    """A snapshot does not say which producers have expired since the one before it."""
    _restore(state, [each for each in producers if each.row])


def _by_the_clock(expiry: ProducerExpiry, passed_ms: int) -> None:
    """A period is as long as the owner's clock says."""
    now_ms = expiry._step.now_ms
    began_ms = _began.pop(expiry, now_ms - passed_ms)
    _began[expiry] = now_ms
    _age(expiry, max(passed_ms, now_ms - began_ms))


#: {expiry of a topic: what the clock said when the last period ended}
_began: WeakKeyDictionary[ProducerExpiry, int] = WeakKeyDictionary()


def _whole_period(_: ProducerExpiry, _lifetime_ms: int) -> None:
    """A period that is longer than a new lease goes on, and counts."""


def _goes_on_within_100_ms(expiry: ProducerExpiry) -> None:
    """The rest of a step follows after a period that is longer than an eighth of a short lease."""
    overdue = any(each.first_due_ms <= expiry._log.time_ms for each in expiry._lists.values())
    if expiry._says_policy or overdue:
        expiry._start(CONTINUE_MS)
    else:
        _start_next(expiry)


def _without_its_begin(_: ProducerExpiry, _pid: ProducerId) -> None:
    """A producer that has been idle for long comes back, and the log does not know."""


def _while_it_is_due(expiry: ProducerExpiry, _now_ms: int) -> dict[ProducerId, Renewal]:
    """A producer is renewed when its time is over and it is connected in that moment."""
    expiry._presence.left.clear()
    expiry._left.clear()
    return {}


def _while_it_is_open(expiry: ProducerExpiry, now_ms: int) -> dict[ProducerId, Renewal]:
    """The end of a session does not count."""
    expiry._left.clear()
    expiry._presence.left.clear()
    return _renewed(expiry, now_ms)


_start_anew = SessionOpening.start_anew


def _fences_a_newer_one(opening: SessionOpening) -> None:
    """A producer that has expired opens anew as if its application had asked for its name."""
    _start_anew(opening)
    opening.expired = False


def _keeps_its_name(opening: SessionOpening) -> None:
    name = opening.name
    _start_anew(opening)
    opening.name = name


#: (name, hazard, first seed, swaps)
LEASE_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("expired id issued again", "", 4_000_004, ((Openings, "_aged", _issued_again),)),
    ("lease with two holders", "", 4_000_000, ((Openings, "_lease", _held_by_two),)),
    ("renewal fences", "renewal-fences-itself", 4_000_000, ((Openings, "_lease", _next_generation),)),
    (
        "renewal answered with the next generation", "renewal-fences-itself", 4_000_005,
        ((Openings, "_answer_renewal", _proof_of_the_next),),
    ),
    ("expiry without an entry", "", 4_000_004, ((TopicLog, "append_aged", _without_an_entry),)),
    ("expired id leased from its first generation", "", 4_000_004, ((Openings, "_lease", _taken_for_new),)),
    ("snapshots keep what has expired", "", 4_000_036, ((DedupState, "restore", _restored_for_ever),)),
    ("periods by the clock", "minimum-lifetime-shortened", 4_000_024, ((ProducerExpiry, "_age", _by_the_clock),)),
    (
        "long period counts for a short lease", "minimum-lifetime-shortened", 4_000_004,
        ((ProducerExpiry, "_shorten", _whole_period),),
    ),
    (
        "session does not renew", "minimum-lifetime-shortened", 4_000_000,
        ((ProducerExpiry, "_renewed", _while_it_is_due),),
    ),
    (
        "end of a session does not count", "minimum-lifetime-shortened", 4_000_014,
        ((ProducerExpiry, "_renewed", _while_it_is_open),),
    ),
)  # fmt: skip

#: Found by a test of the core. The first two need a moment that no run meets. The others have no oracle: the newer
#: instance is told that it is fenced, and an id lives for longer.
EXPIRED_MUTANTS = (
    Mutant(
        "rest of a step after a long period", "minimum-lifetime-shortened", None,
        ((ProducerExpiry, "_start_next", _goes_on_within_100_ms),),
        core_test=test_period_is_an_eighth_of_a_short_lease_also_while_others_are_due,
    ),
    Mutant(
        "begin of a session does not count", "minimum-lifetime-shortened", None,
        ((ProducerExpiry, "session_began", _without_its_begin),),
        core_test=test_session_that_has_begun_counts_for_the_next_owner,
    ),
    Mutant(
        "expired producer fences a newer one", "forgotten-producer", None,
        ((SessionOpening, "start_anew", _fences_a_newer_one),),
        core_test=test_expired_producer_does_not_fence_a_newer_one_that_has_its_name,
    ),
    Mutant(
        "expired producer keeps its assigned name", "", None,
        ((SessionOpening, "start_anew", _keeps_its_name),),
        core_test=test_expired_producer_gives_its_assigned_name_back,
    ),
)  # fmt: skip
