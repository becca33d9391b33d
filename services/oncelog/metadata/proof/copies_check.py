"""The part `copies` of a proof: each member of each ledger reads its copies back from its disk, and the checksums are
compared.

    a member ...                     means
    has other checksums              a finding
    cannot read an entry             a finding: the copy is damaged. In a ledger that is still written, only if the
                                     member cannot give the entry to a reader either: else it is not on its disk yet
    lacks a whole closed ledger      a finding: its copy is lost, or was never written
    lacks an entry                   a finding if the ledger was whole before, or if fewer than the ack quorum have it;
                                     otherwise it is counted as thin: the log promises no more, and repair adds it
    does not answer, or has erased   not checked. After an erasure the ledger's record is read again, because repair
                                     replaces members
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from oncelog.core.errors import InvariantViolated, LogHole, OncelogError
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.entry_reading import HAS_ERASED
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.repair.copies import joined, ranges_of
from oncelog.core.repair.events import CopyVerified, VerifyCopy, VerifyStatus
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.proof.topic_range import RangedLedger, TopicRange
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.metadata.repair.reading_back import STEP, ReadBack, read_back
from oncelog.rpc.codecs.storage_codec import ReadRequest
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import ReadRecord
from oncelog.verify.copies import RULE, MemberCopy, compare_copies, shown
from oncelog.verify.range_summary import Finding

_CHECKSUM_BYTES = 4
#: Entries of the first step. A later step has twice as many, or half as many if the step before took more than STEP_S:
#: the progress that users see moves by steps, and entries may be large.
FIRST_STEP = 16
STEP_S = 2.0
#: Entries of an open ledger that a member does not have on its disk, and that are read from it one by one.
_LOOKS_MAX = 64
#: A member that did not answer is not asked for this long: each question may take minutes.
SILENT_S = 300.0
_CANNOT_READ = "the node cannot read it from its disk"
_SILENT = "did not answer"


@dataclass(slots=True)
class CopiesChecked:
    """One step. entries: that were compared. place: of the entry behind them. thin: entries that a member lacks and the
    ack quorum has. not_checked: what a member did not say."""

    place: Position
    entries: int = 0
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    thin: int = 0


class CopiesCheck:
    def __init__(self, nodes: NodeCalls, requests: CopyRequests, record: ReadRecord, throttle: Throttle) -> None:
        self._nodes = nodes
        self._requests = requests
        self._record = record
        self._throttle = throttle
        self._step = FIRST_STEP
        #: {member that did not answer: until when it is not asked}
        self._silent: dict[Incarnation, float] = {}

    async def run(self, known: TopicRange, behind: Position) -> AsyncIterator[CopiesChecked]:
        """From the entry `behind` on, step by step. Raises LogHole when retention deletes a ledger meanwhile."""
        for ledger in known.ledgers:
            if ledger.record.ledger_id >= behind.ledger_id:
                same = ledger.record.ledger_id == behind.ledger_id
                async for checked in self._of_ledger(ledger, behind.entry_id if same else EntryId(0)):
                    yield checked

    async def _of_ledger(self, ledger: RangedLedger, first: EntryId) -> AsyncIterator[CopiesChecked]:
        record, following = ledger.record, first
        lacking: dict[Incarnation, list[EntryId]] = {}
        while following <= record.end:
            began_s = asyncio.get_running_loop().time()
            last = EntryId(min(following + self._step - 1, record.end))
            async for found in read_back(self._verify, record, record.members, following, last):
                if found.copies.erased and (present := await self._with_other_members(record)) is not None:
                    record = present
                    break
                for node, missing in found.missing.items():
                    lacking.setdefault(node, []).extend(missing)
                yield await self._compared(record, found, closed=ledger.closed)
                following = EntryId(found.copies.span.last + 1)
            slow = asyncio.get_running_loop().time() - began_s > STEP_S
            self._step = max(1, self._step // 2) if slow else min(STEP, self._step * 2)
        if ledger.closed:
            yield _lost_copies(record, {node: lacking[node] for node in record.members if lacking.get(node)})

    async def _verify(self, effect: VerifyCopy) -> CopyVerified:
        now_s = asyncio.get_running_loop().time()
        if self._silent.get(effect.node, now_s) > now_s:
            return CopyVerified(effect.node, effect.first, VerifyStatus.SILENT)
        answer = await self._requests.verify(effect)
        if answer.status is VerifyStatus.SILENT:
            self._silent[effect.node] = asyncio.get_running_loop().time() + SILENT_S
        return answer

    async def _with_other_members(self, record: LedgerMetadata) -> LedgerMetadata | None:
        """None: the members are the same as before."""
        present = await self._record(record.ledger_id)
        if present is None:
            raise LogHole(f"ledger {record.ledger_id} has no record any more", ledger_id=record.ledger_id)
        if present.members == record.members:
            return None
        return replace(record, members=present.members, verified=present.verified)

    async def _compared(self, record: LedgerMetadata, found: ReadBack, *, closed: bool) -> CopiesChecked:
        span, ledger_id = found.copies.span, record.ledger_id
        checked = CopiesChecked(Position(ledger_id, EntryId(span.last + 1)), span.last - span.first + 1)
        members = {node: _copy_of(node, found) for node in record.members}
        if not closed:
            for node, copy in members.items():
                copy.damaged = await self._damaged(node, ledger_id, list(copy.damaged))
        with self._throttle.working():
            compared = compare_copies(ledger_id, span.first, span.last, record.ack_quorum, members)
        checked.findings, checked.thin = compared.findings, compared.thin
        for node, copy in members.items():
            if copy.silent:
                what = f"entries {span.first} to {span.last} of ledger {ledger_id}"
                checked.not_checked.append(f"storage node {shown(node)} {copy.silent}: {what}")
        if not closed:
            checked.not_checked += _not_on_disk(record, found, members)
        await self._throttle.pause(0)
        return checked

    async def _damaged(self, node: Incarnation, ledger_id: LedgerId, ids: list[EntryId]) -> dict[EntryId, str]:
        """Those of the ids that the node cannot give to a reader either."""
        damaged: dict[EntryId, str] = {}
        for entry_id in ids[:_LOOKS_MAX]:
            try:
                async for frame in self._nodes.read(node, ReadRequest(node, ledger_id, entry_id, 1)):
                    damaged |= dict.fromkeys(frame.unreadable_ids, _CANNOT_READ)
            except InvariantViolated:
                raise
            except OncelogError:
                break  # named as not checked, if too few others have the entry
        return damaged


def _copy_of(node: Incarnation, found: ReadBack) -> MemberCopy:
    copies = found.copies
    sound = {entry_id: crc.to_bytes(_CHECKSUM_BYTES, "big") for entry_id, crc in copies.sound.get(node, {}).items()}
    copy = MemberCopy(sound, set(found.missing.get(node, ())))
    copy.damaged = dict.fromkeys(found.unreadable.get(node, ()), _CANNOT_READ)
    if node not in copies.answered:
        copy.silent = HAS_ERASED if node in copies.erased else _SILENT
    return copy


def _not_on_disk(record: LedgerMetadata, found: ReadBack, members: dict[Incarnation, MemberCopy]) -> list[str]:
    """Entries of an open ledger that fewer than the ack quorum have on their disks, though none of them is damaged."""
    scarce: list[EntryId] = []
    for entry_id in found.copies.ids():
        unknown = any(
            entry_id in found.unreadable.get(node, ()) and entry_id not in copy.damaged
            for node, copy in members.items()
        )
        if unknown and sum(entry_id in copy.digests for copy in members.values()) < record.ack_quorum:
            scarce.append(entry_id)
    return [
        f"entries {some.first} to {some.last} of ledger {record.ledger_id}, which is still written, are not yet on the "
        f"disks of {record.ack_quorum} storage nodes: prove the topic again"
        for some in ranges_of(scarce)
    ]


def _lost_copies(record: LedgerMetadata, lacking: dict[Incarnation, list[EntryId]]) -> CopiesChecked:
    """What members of a closed ledger lack."""
    ledger_id = record.ledger_id
    checked = CopiesChecked(Position(ledger_id, EntryId(record.end + 1)))
    for node, ids in sorted(lacking.items()):
        if len(ids) == record.end + 1:
            gone = {node: MemberCopy(begins=False)}
            checked.findings += compare_copies(ledger_id, EntryId(0), EntryId(-1), record.ack_quorum, gone).findings
        elif record.verified:
            for some in joined(ranges_of(ids)):
                text = (
                    f"storage node {shown(node)} lacks entries {some.first} to {some.last} of the ledger, which all "
                    "its members have had: its copy has lost them"
                )
                checked.findings.append(Finding(RULE, Position(ledger_id, some.first), text))
    return checked
