"""Which proof is next, and who may ask for another one: one role must not hold up those of all others. Pure.

Rules
- A proof that was interrupted goes on first: a part of it is done.
- Then the roles that asked take turns: the next is the one whose last turn is the longest ago, with its oldest one.
- One role has at most half of the requests that may wait. Without authentication all callers are one role, which may
  have all of them.
- A proof reads at a pace above a floor, whatever was asked for: so each turn ends.
"""

from collections.abc import Sequence

from oncelog.core.access import NO_ROLE
from oncelog.core.errors import LimitReached
from oncelog.verify.proof import ProofState, TopicProof

#: Proofs that wait or go on at once, and how many of them one role has asked for.
PROOFS_MAX = 1_000
ROLE_PROOFS_MAX = PROOFS_MAX // 2
#: The slowest pace: bytes per second of each storage node, and the share of a core of the metadata service.
BYTES_PER_S_MIN, CPU_PERCENT_MIN = 1024 * 1024, 5


class ProofTurns:
    """Of the process that works on the proofs. It forgets a role of which none waits."""

    def __init__(self) -> None:
        self._turn = 0
        #: {role: when its last turn was}
        self._last: dict[str, int] = {}

    def next_of(self, waiting: Sequence[TopicProof]) -> TopicProof:
        """waiting: at least one. It is taken: its role had its turn."""
        roles = {each.by for each in waiting}
        self._last = {role: turn for role, turn in self._last.items() if role in roles}
        found = min(waiting, key=lambda one: (one.state is ProofState.QUEUED, self._last.get(one.by, 0), one.asked_ms))
        self._turn += 1
        self._last[found.by] = self._turn
        return found


def check_room(waiting: Sequence[str], role: str) -> None:
    """waiting: the role of each proof that waits or goes on. Raises LimitReached if `role` may ask for no further."""
    if len(waiting) >= PROOFS_MAX:
        raise LimitReached(f"{PROOFS_MAX} proofs wait already: ask again when some have ended", limit=PROOFS_MAX)
    if role != NO_ROLE and waiting.count(role) >= ROLE_PROOFS_MAX:
        message = f"{ROLE_PROOFS_MAX} proofs of role {role} wait already, the maximum of one role: ask again later"
        raise LimitReached(message, limit=ROLE_PROOFS_MAX)
