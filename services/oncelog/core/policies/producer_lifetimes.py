"""How long producers live that do nothing.

A lease has a lifetime of its own, which the log keeps: no policy changes it. Names live as the policies say, from the
time on at which the log says so (PRODUCERS_AGED). If a policy becomes shorter, producers have the whole new lifetime
from then on, also those that were idle for longer: nothing expires in the hour in which somebody mistypes a policy.
"""

from dataclasses import dataclass
from typing import NamedTuple

#: The parts of a lifetime: see `core.publishing.expiry`.
EIGHTHS = 8
#: Of a lease: ten seconds to a year.
LEASE_MS_MIN, LEASE_MS_MAX = 10_000, 366 * 86_400_000
#: Of a lease that states none, and of producers whose names were assigned.
LEASE_MS = 7 * 86_400_000
#: The shortest that a policy can give: a period of an hour is an eighth of it.
POLICY_MS_MIN = 8 * 3_600_000


@dataclass(frozen=True, slots=True)
class ProducerLifetimes:
    """What the policies say, in ms. assigned_ms, chosen_ms: of producers without a lease, by the kind of their names;
    0: for ever, else at least POLICY_MS_MIN. lease_ms: of leases that state none."""

    assigned_ms: int = LEASE_MS
    chosen_ms: int = 0
    lease_ms: int = LEASE_MS

    def of(self, *, assigned: bool) -> int:
        return self.assigned_ms if assigned else self.chosen_ms


class LoggedLifetimes(NamedTuple):
    """What holds in a log: the lifetimes in ms by the kind of names, 0: for ever; and the time of the log from which
    they count at the earliest, which is when they became shorter."""

    assigned_ms: int = 0
    chosen_ms: int = 0
    assigned_since_ms: int = 0
    chosen_since_ms: int = 0

    def of(self, *, assigned: bool) -> int:
        return self.assigned_ms if assigned else self.chosen_ms

    def since(self, *, assigned: bool) -> int:
        return self.assigned_since_ms if assigned else self.chosen_since_ms

    def changed(self, assigned_ms: int, chosen_ms: int, now_ms: int) -> "LoggedLifetimes":
        """now_ms: the time of the log."""
        return LoggedLifetimes(
            assigned_ms,
            chosen_ms,
            now_ms if _shorter(assigned_ms, self.assigned_ms) else self.assigned_since_ms,
            now_ms if _shorter(chosen_ms, self.chosen_ms) else self.chosen_since_ms,
        )


#: Of a log that says nothing about lifetimes.
FOR_EVER = LoggedLifetimes()


def _shorter(lifetime_ms: int, former_ms: int) -> bool:
    return bool(lifetime_ms) and (not former_ms or lifetime_ms < former_ms)


def lease_ms(asked_ms: int) -> int:
    """The lifetime of a lease: the asked one, rounded up by less than an eighth, so that there are few different ones.

    asked_ms: LEASE_MS_MIN to LEASE_MS_MAX.
    """
    step = 1 << max(0, asked_ms.bit_length() - 4)
    return -(-asked_ms // step) * step
