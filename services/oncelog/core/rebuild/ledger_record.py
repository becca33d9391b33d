"""The record of one ledger, from where its chain puts it and from the nodes that have it.

Rules
- A closed ledger gets as many members as it had: its holders, the fullest copies first. Others fill the list: repair
  copies to a member what it lacks, and proves what is lost.
- An open ledger has the members of its head: a recovery finds its end, because whatever was acknowledged is on one of
  any Qw-Qa+1 of them. If fewer were asked, an operator waits for the others, or gives them up: only those by name.
- Limbo and damage are neither copies nor negatives: a copy in limbo comes after all others (hazard
  limbo-counts-as-asked).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage
from oncelog.core.rebuild.chain_list import ChainLedger
from oncelog.core.rebuild.evidence import Evidence, NodeCopy
from oncelog.core.rebuild.result import WantedLength

#: Who gave up the members that the newest restore beyond the bound had done without.
GIVEN_UP_BEFORE = "an earlier restore"


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """wanted: where the length is; None: it is known. without_holder: entries that no asked node gives. too_few: how
    many members of an open ledger can answer, where these are not enough."""

    metadata: LedgerMetadata
    wanted: WantedLength | None = None
    without_holder: int = 0
    too_few: int | None = None


def record_of(evidence: Evidence, topic_id: TopicId, ledger: ChainLedger) -> LedgerRecord:
    """The ledger has a head, or is in the copy."""
    return _closed(evidence, topic_id, ledger) if ledger.end is not None else _open(evidence, topic_id, ledger)


def _base(evidence: Evidence, topic_id: TopicId, ledger: ChainLedger) -> LedgerMetadata:
    """Open, with its first members. What an operator gave up of an open ledger is of the lower era; of a closed one it
    stays."""
    copied = ledger.copied
    if copied is not None:
        if copied.state is not LedgerState.CLOSED:
            copied = replace(copied, given_up_by="", given_up=())
        members = copied.members if ledger.head is None else ledger.head.members
        return replace(copied, members=members, state=LedgerState.OPEN, joining=None, verified=False)
    if ledger.head is not None:
        return LedgerMetadata(ledger.ledger_id, topic_id, ledger.head.members, ledger.head.ack_quorum)
    # The copy's walk has read the list and not the ledger's record.
    holders = [copy.node for copy in evidence.copies(ledger.ledger_id)]
    return LedgerMetadata(ledger.ledger_id, topic_id, tuple(holders), evidence.ack_quorum)


# --- closed -----------------------------------------------------------------------------------------------------------


def _closed(evidence: Evidence, topic_id: TopicId, ledger: ChainLedger) -> LedgerRecord:
    base, end = _base(evidence, topic_id, ledger), ledger.end
    assert end is not None
    copies = evidence.copies(ledger.ledger_id)
    known = base.members if ledger.copied is None else (*ledger.copied.members, *base.members)
    holders = _holders(copies, end, known)
    members = _filled(evidence, copies, holders, known, base.write_quorum)
    length, wanted = _length(evidence, ledger, end)
    record = replace(base, members=members, state=LedgerState.CLOSED, end=end, length=length)
    return LedgerRecord(record, wanted, _without_holder(copies, end))


def _holders(copies: Iterable[NodeCopy], end: EntryId, known: Sequence[Incarnation]) -> list[Incarnation]:
    """The fullest copies first; of equal ones, those of known members."""
    having = [(copy, count) for copy in copies if (count := copy.entries_up_to(end)) > 0]
    having.sort(key=lambda each: (each[0].held.state is CopyState.LIMBO, -each[1], each[0].node not in known))
    return [copy.node for copy, _ in having]


def _filled(
    evidence: Evidence,
    copies: Iterable[NodeCopy],
    holders: Sequence[Incarnation],
    known: Sequence[Incarnation],
    write_quorum: int,
) -> tuple[Incarnation, ...]:
    """As many members as the ledger had: after its holders those that may have a copy, and then those that get one."""
    if len(holders) >= write_quorum:
        return tuple(holders[:write_quorum])
    erased = {copy.node for copy in copies if copy.erased}
    others = [node for node in evidence.inventories if node not in erased]
    order = [*holders, *(node for node in known if node not in erased), *others, *known]
    return tuple(dict.fromkeys(order))[:write_quorum]


def _length(evidence: Evidence, ledger: ChainLedger, end: EntryId) -> tuple[int, WantedLength | None]:
    copies = evidence.copies(ledger.ledger_id)
    if end == NO_ENTRY:
        return 0, None
    if ledger.copied is not None and ledger.copied.state is LedgerState.CLOSED and ledger.copied.end == end:
        return ledger.copied.length, None
    for copy in copies:
        if copy.last == end:
            return copy.held.last_length, None
    holders = [copy.node for copy in copies if any(run.first <= end <= run.last for run in copy.held.runs)]
    if not holders:
        # The last entry is lost, or its holder is silent: so many bytes are there at least.
        return evidence.size_bytes(ledger.ledger_id), None
    return 0, WantedLength(ledger.ledger_id, end, tuple(holders))


def _without_holder(copies: Iterable[NodeCopy], end: EntryId) -> int:
    if any(copy.entries_up_to(end) == end + 1 for copy in copies):
        return 0
    following, missing = 0, 0
    for run in sorted(run for copy in copies for run in copy.held.runs if run.first <= end):
        missing += max(0, run.first - following)
        following = max(following, min(run.last, end) + 1)
    return missing + end + 1 - following


# --- the last one -----------------------------------------------------------------------------------------------------


def _open(evidence: Evidence, topic_id: TopicId, ledger: ChainLedger) -> LedgerRecord:
    record = _base(evidence, topic_id, ledger)
    limbo = [copy.node for copy in evidence.copies(ledger.ledger_id) if copy.held.state is CopyState.LIMBO]
    absent = [member for member in record.members if member not in evidence.inventories]
    able = sum(1 for member in record.members if member not in absent and member not in limbo)
    decides = able >= coverage(write_quorum=record.write_quorum, ack_quorum=record.ack_quorum)
    # A recovery writes the tail back to as many as the ack quorum. It would wait for members that never return.
    asked = evidence.asked
    before = asked.emptied if ledger.ledger_id < asked.owed_below else frozenset[Incarnation]()
    gone = [member for member in absent if member in asked.given_up or member in before]
    if gone and not (decides and able >= record.ack_quorum):
        record = record.give_up(gone, by=asked.given_up_by or GIVEN_UP_BEFORE)
        decides = decides or gone == absent
    return LedgerRecord(record, too_few=None if decides else able)
