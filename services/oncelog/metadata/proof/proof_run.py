"""One proof of one topic, as this process works on it: reads what each part needs, and notes what it found.

`proof` is the record as it should be written next; the caller writes it while `work` goes on.
"""

from typing import Any

from oncelog.core.errors import InvariantViolated, LogHole, OncelogError, TopicNotFound
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.names import parse_topic
from oncelog.metadata.proof.copies_check import CopiesCheck
from oncelog.metadata.proof.log_check import LogCheck
from oncelog.metadata.proof.owner_folds import OwnerFolds
from oncelog.metadata.proof.owner_view import OwnerViews
from oncelog.metadata.proof.throttle import Throttle
from oncelog.metadata.proof.topic_range import TopicRange, TopicRanges
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.verify.proof import Part, TopicProof
from oncelog.verify.proof_turns import BYTES_PER_S_MIN, CPU_PERCENT_MIN
from oncelog.verify.range_summary import Finding

Json = dict[str, Any]
#: How often a part is read again because retention deletes ledgers of it.
_ATTEMPTS_MAX = 5


class ProofRun:
    def __init__(self, proof: TopicProof, ranges: TopicRanges, folds: OwnerFolds, views: OwnerViews) -> None:
        self.proof = proof
        self._topic = parse_topic(proof.topic)
        self._ranges = ranges
        self._folds = folds
        self._views = views
        # A request of an older version may ask for less than the slowest pace.
        self._bytes_per_s = max(BYTES_PER_S_MIN, proof.bytes_per_second)
        self._throttle = Throttle(self._bytes_per_s, max(CPU_PERCENT_MIN, proof.cpu_percent))
        #: the verification at the owner, which both `fold` and `acks` are about, or why there is none
        self._verified: Json | OncelogError | None = None

    async def work(self) -> None:
        """Prove each part that is not done. Raises TopicNotFound once the topic is deleted."""
        of_part = {
            Part.END: self._end, Part.ONCE: self._once, Part.COPIES: self._copies, Part.FOLD: self._fold,
            Part.ACKS: self._acks,
        }  # fmt: skip
        while (part := self.proof.next_part) is not None:
            self.proof = self.proof.begun(part)
            try:
                await of_part[part]()
            except (InvariantViolated, TopicNotFound):
                raise
            except OncelogError as error:
                self.proof = self.proof.left_out(part, [error.message])
                if part is Part.END:
                    return  # nothing is known of what to read
            self.proof = self.proof.done(part)

    async def _end(self) -> None:
        end = await self._ranges.end_of(self._topic)
        if end.topic_id != self.proof.topic_id:
            raise TopicNotFound(f"topic {self._topic} was deleted", topic=str(self._topic))
        try:
            known = await self._ranges.range_of(end.topic_id, end.position, end.next_index)
        except LogHole as error:
            self.proof = self.proof.found(Part.END, [Finding("chain", end.position, error.message)])
            raise
        last = end.position if known.ledgers else None
        self.proof = self.proof.ranged(
            from_index=known.from_index, until_index=known.until_index, end=last, entries=known.entries
        ).progressed(Part.END, len(known.ledgers), len(known.ledgers))

    async def _range(self) -> TopicRange:
        """The ledgers as they are listed now."""
        proof = self.proof
        end = Position.parse(proof.end) if proof.end else BEFORE_ALL
        known = await self._ranges.range_of(proof.topic_id, end, proof.until_index)
        self.proof = proof.trimmed(known.from_index)
        return known

    async def _once(self) -> None:
        for attempt in range(_ATTEMPTS_MAX):
            known = await self._range()
            check = LogCheck(self._topic, known, self._ranges, self._views, self._throttle, self._read)
            try:
                checked = await check.run()
            except LogHole:
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise
                continue
            self.proof = self.proof.found(Part.ONCE, checked.findings, checked.findings_count)
            self.proof = self.proof.left_out(Part.ONCE, checked.not_checked)
            return

    def _read(self, entries: int, of: int) -> None:
        self.proof = self.proof.progressed(Part.ONCE, entries, of)

    async def _copies(self) -> None:
        nodes = self._views.nodes
        requests = CopyRequests(nodes, bytes_per_s=self._bytes_per_s)
        check = CopiesCheck(nodes, requests, self._ranges.record, self._throttle)
        for attempt in range(_ATTEMPTS_MAX):
            known = await self._range()
            behind = Position(LedgerId(self.proof.resume_ledger), EntryId(self.proof.resume_entry))
            try:
                async for step in check.run(known, behind):
                    found = self.proof.found(Part.COPIES, step.findings).left_out(Part.COPIES, step.not_checked)
                    self.proof = found.copies_compared(step.entries, step.thin, step.place)
            except LogHole:
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise
                continue
            return

    # --- at the owner -------------------------------------------------------------------------------------------------

    async def _verify(self) -> Json:
        if self._verified is None:
            try:
                self._verified = await self._folds.verified(self._topic, self._bytes_per_s, self._seen)
            except OncelogError as error:
                self._verified = error
        if isinstance(self._verified, OncelogError):
            raise self._verified
        return self._verified

    def _seen(self, verified: Json) -> None:
        self.proof = self.proof.progressed(Part.FOLD, verified["producers_compared"], verified["producer_count"])

    async def _fold(self) -> None:
        verified = await self._verify()
        findings = [_finding(each, verified) for each in verified["differences"]]
        self.proof = self.proof.found(Part.FOLD, findings, verified["differences_count"])
        self.proof = self.proof.left_out(Part.FOLD, _not_verified(verified))

    async def _acks(self) -> None:
        verified = await self._verify()
        acks: Json | None = verified.get("subscriptions")
        if acks is None:
            reasons = _not_verified(verified) or ["this version of the topic owner does not verify them"]
            self.proof = self.proof.left_out(Part.ACKS, reasons)
            return
        findings = [_finding(each, verified | acks) for each in acks["differences"]]
        self.proof = self.proof.found(Part.ACKS, findings, acks["differences_count"])
        self.proof = self.proof.progressed(Part.ACKS, acks["compared"], acks["count"])
        self.proof = self.proof.left_out(Part.ACKS, _not_verified(verified))


def _finding(difference: Json, verified: Json) -> Finding:
    """Where the owner's state differs from snapshot and log."""
    snapshot, position = verified["snapshot"], verified["position"]
    base = f"snapshot {snapshot['number']} at {snapshot['position']}" if snapshot is not None else "no snapshot"
    what = difference.get("subscription") or difference["producer"]
    kind = "subscription" if difference.get("subscription") else "producer" if what else "the topic"
    text = (
        f"{f'{kind} {what!r}' if what else kind}: {difference['field']} is {difference['found']} at its owner, but "
        f"{difference['expected']} by {base} and the log behind it up to {position}"
    )
    return Finding("subscriptions" if kind == "subscription" else "fold", _position(position), text)


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)


def _not_verified(verified: Json) -> list[str]:
    """Why the owner has no verdict, or one that begins with an older snapshot."""
    if verified["state"] not in ("equal", "different"):
        return [verified["error"] or f"the verification at the topic owner was {verified['state']}"]
    read = 0 if verified["snapshot"] is None else verified["snapshot"]["number"]
    newest = verified["newest_snapshot_number"]
    return [f"snapshot {newest} cannot be read; the verification began with {read or 'none'}"] if newest > read else []
