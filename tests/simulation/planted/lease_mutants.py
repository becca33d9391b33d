"""Planted bugs of leases and of producers that expire: each takes one rule from the owner or from its snapshots."""

from typing import Any
from weakref import WeakKeyDictionary

from oncelog.core.formats.opening import Lease
from oncelog.core.formats.producers_aged import ProducersAged
from oncelog.core.ids import Generation
from oncelog.core.publishing.dedup_state import DedupState, assigned_name
from oncelog.core.publishing.expiry import ProducerExpiry
from oncelog.core.publishing.log import TopicLog
from oncelog.core.publishing.openings import Openings

_aged, _lease = Openings._aged, Openings._lease
_append_aged, _age, _restore = TopicLog.append_aged, ProducerExpiry._age, DedupState.restore


def _issued_again(openings: Openings, entry: Any, aged: ProducersAged) -> None:
    """The ids of expired producers are free for the next new ones."""
    openings._free.extend(aged.expired)
    _aged(openings, entry, aged)


def _next_generation(openings: Openings, opening: Any, lease: Lease) -> Any:
    """A renewal grants the next generation."""
    return _lease(openings, opening, lease._replace(generation=None))


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


#: (name, hazard, first seed, swaps)
LEASE_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("expired id issued again", "", 4_000_003, ((Openings, "_aged", _issued_again),)),
    ("renewal fences", "renewal-fences-itself", 4_000_000, ((Openings, "_lease", _next_generation),)),
    (
        "renewal answered with the next generation", "renewal-fences-itself", 4_000_039,
        ((Openings, "_answer_renewal", _proof_of_the_next),),
    ),
    ("expiry without an entry", "", 4_000_004, ((TopicLog, "append_aged", _without_an_entry),)),
    ("expired id leased from its first generation", "", 4_000_004, ((Openings, "_lease", _taken_for_new),)),
    ("snapshots keep what has expired", "", 4_000_011, ((DedupState, "restore", _restored_for_ever),)),
    ("periods by the clock", "minimum-lifetime-shortened", 4_000_001, ((ProducerExpiry, "_age", _by_the_clock),)),
    (
        "long period counts for a short lease", "minimum-lifetime-shortened", 4_000_001,
        ((ProducerExpiry, "_shorten", _whole_period),),
    ),
)  # fmt: skip
