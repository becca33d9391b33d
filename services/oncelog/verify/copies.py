"""Compares the copies of a ledger's entries on its members. Pure.

    held      the member returned the whole entry; its digest is compared
    missing   the member answered that it does not hold the entry
    damaged   the member answered that it cannot read the entry, or returned other bytes
    unknown   the member did not answer, which does not mean that the entry is missing

Rules
- Two copies with different bytes are a violation, and so is a damaged copy.
- A member that holds no entry of a ledger is a violation: its copy is lost or was never written.
- An entry with fewer copies than the ack quorum is a violation, unless a member that did not answer may hold it.
- An entry that one member lacks and that the ack quorum has is thin. It is counted, because the log promises no more.
- A ledger that is still written (quorum 0) has no missing copies: they may be on their way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.verify.range_summary import Finding

RULE = "copies"
#: Characters of an incarnation that are shown; enough to tell the members of a ledger apart.
SHOWN_CHARACTERS = 8


@dataclass(slots=True)
class MemberCopy:
    """The answers of one member for some entries. digests: {entry: digest of its bytes}. damaged: {entry: why}.

    silent: why the member did not answer for the rest; empty if it did. holds_some: the member holds an entry of the
    ledger. begins: whether it holds any entry of the ledger; None: unknown.
    """

    digests: dict[EntryId, bytes] = field(default_factory=dict)
    missing: set[EntryId] = field(default_factory=set)
    damaged: dict[EntryId, str] = field(default_factory=dict)
    silent: str = ""
    holds_some: bool = False
    begins: bool | None = None

    def has_answered(self, entry_id: EntryId) -> bool:
        """Whether the member has answered for the entry."""
        return entry_id in self.digests or entry_id in self.missing or entry_id in self.damaged


class CopiesComparison(NamedTuple):
    """copies: number of held copies. thin: entries with fewer copies than members, but with the ack quorum."""

    findings: list[Finding]
    copies: int
    thin: int


def compare_copies(
    ledger_id: LedgerId, first: EntryId, last: EntryId, quorum: int, copies: Mapping[Incarnation, MemberCopy]
) -> CopiesComparison:
    """Compare entries first to last of a ledger. With last < first only the members themselves are checked.

    quorum: the ack quorum, 0: the ledger is still written.
    """
    findings: list[Finding] = []
    if quorum:
        findings += [_gone(ledger_id, first, member) for member, copy in sorted(copies.items()) if copy.begins is False]
    scarce: list[EntryId] = []
    thin = 0
    for number in range(first, last + 1):
        entry_id = EntryId(number)
        position = Position(ledger_id, entry_id)
        for member, copy in copies.items():
            if entry_id in copy.damaged:
                text = f"the copy on {shown(member)} is damaged: {copy.damaged[entry_id]}"
                findings.append(Finding(RULE, position, text))
        holders = {member: copy.digests[entry_id] for member, copy in copies.items() if entry_id in copy.digests}
        if len(set(holders.values())) > 1:
            findings.append(Finding(RULE, position, _different(holders)))
        unknown = sum(not copy.has_answered(entry_id) for copy in copies.values())
        if quorum and len(holders) + unknown < quorum:
            scarce.append(entry_id)
        elif quorum and len(holders) + unknown < len(copies):
            thin += 1
    findings += [_scarce(ledger_id, some, quorum) for some in _without_gaps(scarce)]
    return CopiesComparison(findings, sum(len(copy.digests) for copy in copies.values()), thin)


def shown(member: Incarnation) -> str:
    return member[:SHOWN_CHARACTERS]


def _gone(ledger_id: LedgerId, first: EntryId, member: Incarnation) -> Finding:
    text = (
        f"storage node {shown(member)} does not hold ledger {ledger_id} although it is a member: its copy is lost, or "
        "the node was down when the ledger was written"
    )
    return Finding(RULE, Position(ledger_id, first), text)


def _different(holders: Mapping[Incarnation, bytes]) -> str:
    digests = ", ".join(f"{shown(member)} {digest.hex()[:12]}" for member, digest in sorted(holders.items()))
    return f"its copies differ, by their digests: {digests}"


def _scarce(ledger_id: LedgerId, run: Sequence[EntryId], quorum: int) -> Finding:
    what = f"entry {run[0]} has" if len(run) == 1 else f"entries {run[0]} to {run[-1]} have"
    return Finding(RULE, Position(ledger_id, run[0]), f"{what} fewer than {quorum} copies, the ack quorum")


def _without_gaps(entries: Iterable[EntryId]) -> Iterator[list[EntryId]]:
    """Split ascending entries into runs without a gap."""
    run: list[EntryId] = []
    for entry_id in entries:
        if run and entry_id != run[-1] + 1:
            yield run
            run = []
        run.append(entry_id)
    if run:
        yield run
