"""How long producers live that do nothing."""

from dataclasses import dataclass

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
    """Lifetimes in ms of producers without a lease, by the kind of their names; 0: for ever."""

    assigned_ms: int = LEASE_MS
    chosen_ms: int = 0

    def of(self, *, assigned: bool) -> int:
        return self.assigned_ms if assigned else self.chosen_ms


FOR_EVER = ProducerLifetimes(0, 0)


def lease_ms(asked_ms: int) -> int:
    """The lifetime of a lease: the asked one, rounded up by less than an eighth, so that there are few different ones.

    0: the default. asked_ms: 0, or LEASE_MS_MIN to LEASE_MS_MAX.
    """
    if not asked_ms:
        return LEASE_MS
    step = 1 << max(0, asked_ms.bit_length() - 4)
    return -(-asked_ms // step) * step
