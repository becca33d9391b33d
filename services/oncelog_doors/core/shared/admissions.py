"""How many connections a door takes, of whom.

A connection is accepted before its client is authenticated. So one address has half of the places at most, and so has
one role. An address whose clients fail to authenticate again and again is refused for a while, because each attempt
costs the check of a token.
"""

from collections import Counter, deque
from dataclasses import dataclass

FAILURES_MAX = 16
FAILURES_MS = 60_000
#: Addresses whose failures are counted; the one that was quiet for longest is forgotten first.
ADDRESSES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    connections_max: int = 5_000

    @property
    def of_one_max(self) -> int:
        return max(1, self.connections_max // 2)


class Admissions:
    """Of one door."""

    def __init__(self, limits: AdmissionLimits | None = None) -> None:
        self._limits = limits or AdmissionLimits()
        self._addresses: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        #: {address: when its newest failures were}, the address that failed last at the end
        self._failures: dict[str, deque[int]] = {}

    def refusal_of_address(self, address: str, now_ms: int) -> str | None:
        """Why a connection from there is refused; None: it is `admitted`."""
        limits = self._limits
        if self._addresses.total() >= limits.connections_max:
            return f"there are {limits.connections_max} connections, and no more are taken"
        if self._addresses[address] >= limits.of_one_max:
            return f"{address} has {limits.of_one_max} connections, and no more are taken from one address"
        failures = self._failures.get(address)
        if failures is not None and len(failures) >= FAILURES_MAX and failures[0] > now_ms - FAILURES_MS:
            return f"{FAILURES_MAX} connections from {address} failed within a minute: it is refused for that long"
        return None

    def admitted(self, address: str) -> None:
        self._addresses[address] += 1

    def refusal_of_role(self, role: str) -> str | None:
        """Why a connection of this role is refused; None: it is `proved`."""
        if self._roles[role] >= self._limits.of_one_max:
            return f"role {role} has {self._limits.of_one_max} connections, and no more are taken of one role"
        return None

    def proved(self, role: str) -> None:
        self._roles[role] += 1

    def failed(self, address: str, now_ms: int) -> None:
        """A connection from there was not authenticated, or broke the protocol before that."""
        failures = self._failures.pop(address, None) or deque(maxlen=FAILURES_MAX)
        failures.append(now_ms)
        self._failures[address] = failures
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def gone(self, address: str, role: str | None) -> None:
        """An admitted connection is over. role: None if it was not authenticated."""
        for counter, key in ((self._addresses, address), (self._roles, role)):
            if key is not None:
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
