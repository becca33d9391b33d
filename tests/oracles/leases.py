"""Checks leases, and producers that expire, against the log.

    lifetimes     an entry that lets a producer expire is appended its whole lifetime after everything that it did, and
                  after each entry that its owner appended while it was connected
    no guess      a producer is told that it has expired only after such an entry was appended, by whichever owner
    ids           an id that is leased anew was leased to nobody before
    one holder    a generation of an id is given to one request: of two holders the lower one is fenced
    renewals      who proves the current generation keeps it

Times are those of the world and not of any clock. That nothing of an expired id lands behind its expiry, and that its
id is granted to nobody, are rules of the fold (`fold`); what owners keep after a takeover is compared with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.formats.head import HEAD_KINDS
from oncelog.core.formats.opening import Lease, Leased, ProducerInstance
from oncelog.core.ids import Position, ProducerId
from oncelog.core.policies.producer_lifetimes import ProducerLifetimes
from oncelog.core.publishing.dedup_state import assigned_name
from oncelog.verify.stored_log import LoggedEntry
from oncelog.verify.violation import Violation
from tests.oracles.fold import LogFold


class Appended(NamedTuple):
    """When an owner handed an entry to the log, and the producers that had a session there in the step before."""

    at: int
    connected: frozenset[ProducerId]


@dataclass(slots=True)
class LeaseHistory:
    """Of one topic. appended: of its log's entries, also those that never became durable. expired: {producer: when it
    was told first}. anew: {producer: the request that got it as a new one}. holders: {generation of a producer: the
    request that got it}."""

    appended: dict[Position, Appended] = field(default_factory=dict)
    expired: dict[ProducerId, int] = field(default_factory=dict)
    anew: dict[ProducerId, bytes] = field(default_factory=dict)
    holders: dict[ProducerInstance, bytes] = field(default_factory=dict)

    def leased(self, request: bytes, wanted: Lease, given: Leased) -> None:
        """A request was answered. Raises Violation."""
        pid, generation = given.instance
        if wanted.producer_id is None:
            if self.anew.setdefault(pid, request) != request:
                raise Violation(
                    "ids never repeat", f"producer {pid} is leased anew to {request!r}: {self.anew[pid]!r} has it"
                )
        elif pid != wanted.producer_id:
            raise Violation("ids never repeat", f"producer {pid} is leased instead of {wanted.producer_id}")
        if wanted.generation is None and self.holders.setdefault(given.instance, request) != request:
            raise Violation("one holder", f"generation {generation} of {pid} is leased to two programs")
        if wanted.generation is not None and generation != wanted.generation:
            raise Violation(
                "renewals", f"generation {wanted.generation} of {pid} was proven, the answer is {generation}"
            )

    def told_expired(self, pid: ProducerId, now: int) -> None:
        self.expired.setdefault(pid, now)


def check_leases(history: LeaseHistory, fold: LogFold, policy: ProducerLifetimes) -> None:
    """Raises Violation. fold: of the whole log."""
    ended = _ends_of_lives(history.appended, fold.entries.values(), policy)
    for pid, told in history.expired.items():
        if pid not in ended or ended[pid] > told:
            raise Violation(
                "no guess", f"producer {pid} was told at {told} that it has expired, the log: {ended.get(pid)}"
            )


def _ends_of_lives(
    appended: Mapping[Position, Appended], entries: Iterable[LoggedEntry], policy: ProducerLifetimes
) -> dict[ProducerId, int]:
    """{expired producer: when its expiry was appended}."""
    active: dict[ProducerId, int] = {}
    lifetimes: dict[ProducerId, int] = {}
    ended: dict[ProducerId, int] = {}
    for entry in entries:
        if entry.header.kind in HEAD_KINDS:
            continue
        now, connected = appended[entry.header.position]
        active.update((pid, now) for pid in connected)
        if entry.batch is not None:
            active[entry.batch.producer_id] = now
        elif entry.grant is not None:
            pid = entry.grant.producer_id
            own = policy.of(assigned=entry.grant.name == assigned_name(pid))
            active[pid], lifetimes[pid] = now, entry.grant.lifetime_ms or lifetimes.get(pid, own)
        elif entry.aged is not None:
            for pid, _, lifetime_ms in entry.aged.renewed:
                active[pid], lifetimes[pid] = now, lifetime_ms or lifetimes[pid]
            for pid in entry.aged.expired:
                ended[pid] = now
                if not lifetimes[pid] or now - active[pid] < lifetimes[pid]:
                    raise Violation(
                        "lifetimes",
                        f"producer {pid}, which lives {lifetimes[pid]} ms, expires {now - active[pid]} ms after it was "
                        f"active, at {entry.header.position}",
                    )
    return ended
