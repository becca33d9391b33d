"""Quorum arithmetic of one entry on the Qw members of its ledger, Qa of which acknowledge it.

    copies known durable     >= Qa            the entry is acknowledged
    explicit negatives       >= Qw - Qa + 1   no ack quorum can exist: the entry was never acknowledged
    members fenced           >= Qw - Qa + 1   no ack quorum can form any more

Why: Qa + (Qw - Qa + 1) = Qw + 1 > Qw, so any acknowledging set shares a member with any set of Qw - Qa + 1. That member
either holds the entry and cannot answer "missing", or is fenced and cannot store the entry. A member that does not
answer, or answers "unreadable", counts for neither side. Members are distinct storage nodes: counting one twice breaks
the proof. Source: BookKeeper's coverage set.
"""

from collections.abc import Iterable

from oncelog.core.errors import InvalidArgument


def check_quorums(*, write_quorum: int, ack_quorum: int) -> None:
    """Raises InvalidArgument unless 1 <= ack_quorum <= write_quorum."""
    if not 1 <= ack_quorum <= write_quorum:
        raise InvalidArgument(
            f"ack quorum {ack_quorum} must be from 1 to the write quorum {write_quorum}", field="ack_quorum"
        )


def coverage(*, write_quorum: int, ack_quorum: int) -> int:
    """The smallest number of members that intersects every ack quorum: Qw - Qa + 1."""
    return write_quorum - ack_quorum + 1


def acked(copies: int, ack_quorum: int) -> bool:
    """Whether `copies` members with a durable copy acknowledge the entry."""
    return copies >= ack_quorum


def missing_is_certain(negatives: int, *, write_quorum: int, ack_quorum: int) -> bool:
    """Whether `negatives` members that explicitly lack the entry prove that it was never acknowledged.

    The proof lasts only if each of these members is fenced.
    """
    return negatives >= coverage(write_quorum=write_quorum, ack_quorum=ack_quorum)


def fence_suffices(fenced: int, *, write_quorum: int, ack_quorum: int) -> bool:
    """Whether `fenced` durably fenced members prevent every ack quorum of ordinary adds."""
    return fenced >= coverage(write_quorum=write_quorum, ack_quorum=ack_quorum)


def describe(members: Iterable[str], *, copies: Iterable[str], negatives: Iterable[str], ack_quorum: int) -> str:
    """One line about one entry, for errors and logs: + for a copy, - for missing, ? for unknown."""
    have, lack, every = frozenset(copies), frozenset(negatives), tuple(members)
    states = " ".join(f"{member}{'+' if member in have else '-' if member in lack else '?'}" for member in every)
    certain = missing_is_certain(len(lack), write_quorum=len(every), ack_quorum=ack_quorum)
    verdict = "acknowledged" if acked(len(have), ack_quorum) else "missing" if certain else "undecided"
    return f"{states} (Qa {ack_quorum} of {len(every)}): {verdict}"
