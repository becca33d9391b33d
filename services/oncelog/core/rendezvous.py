"""Rendezvous hashing: processes that see the same candidates rank them in the same order.

A candidate that joins or leaves does not change the order of the others, so few topics and ledgers move.
"""

from collections.abc import Iterable
from hashlib import blake2b

from oncelog.core.ids import Incarnation


def ranked(key: str, candidates: Iterable[Incarnation]) -> list[Incarnation]:
    """The distinct candidates, best first. The order of the input does not matter."""
    return sorted(dict.fromkeys(candidates), key=lambda candidate: (_score(key, candidate), candidate), reverse=True)


def _score(key: str, candidate: Incarnation) -> bytes:
    return blake2b(f"{key}/{candidate}".encode(), digest_size=16).digest()
