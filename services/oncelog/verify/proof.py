"""The online proof of one topic: its parts, how far they have come, and the verdict. Pure.

    QUEUED ──> RUNNING: end ─> once ─> copies ─> fold ─> acks ──> PROVED | FAILED | INCOMPLETE
       └─────────────┴── cancel ──> CANCELLED

    end     which entry is the last confirmed one, and which ledgers hold the log up to it
    once    the header of each entry: no (producer, sequence id) is stored twice; indexes, marks, generations follow
    copies  each entry, read back from its disk by each member: the ack quorum has it, and all checksums are equal
    fold    at the topic owner: the newest snapshot and the log behind it give the producers that the owner has
    acks    at the topic owner: the snapshot and the ack log behind it give the subscriptions that the owner has

Rules
- PROVED says that every part was read to its end, found nothing, and left nothing out. FAILED: at least one finding,
  whatever was left out. INCOMPLETE: no finding, but something was not checked; it is named. So a part that was not read
  is never counted as good.
- A verdict covers the messages from_index .. until_index - 1, as they were read between began_ms and ended_ms. The end
  is fixed by the part `end`; what is stored behind it is not proved. Messages that retention deletes meanwhile leave
  the range.
- A proof that another process takes over keeps its range, and the parts that are done. `copies` goes on at
  `resume_ledger`, `resume_entry`, with what it has found; each other part begins again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from oncelog.core.formats.record_fields import Further, no_fields
from oncelog.core.ids import Position, TopicId
from oncelog.verify.range_summary import Finding

#: Findings, and reasons why something was not checked, that each part keeps; all are counted.
KEPT_MAX = 20
#: Characters of each that are kept.
CHARACTERS_MAX = 500


class ProofState(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    PROVED = "proved"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"


class Part(Enum):
    """In the order in which they are proved."""

    END = "end"
    ONCE = "once"
    COPIES = "copies"
    FOLD = "fold"
    ACKS = "acks"


class PartState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ProofFinding:
    """A broken rule. position: ledger:entry; empty: of the topic as a whole."""

    rule: str
    position: str
    message: str


@dataclass(frozen=True, slots=True)
class PartProof:
    """One part. done, of: of what `unit` names. findings, not_checked: the first KEPT_MAX; the counts are of all.

    thin: of `copies`: entries that a member lacks, and that the ack quorum has.
    """

    part: Part
    unit: str
    state: PartState = PartState.WAITING
    done: int = 0
    of: int = 0
    findings_count: int = 0
    findings: tuple[ProofFinding, ...] = ()
    not_checked_count: int = 0
    not_checked: tuple[str, ...] = ()
    thin: int = 0


#: Former verdicts that a verdict keeps.
FORMER_MAX = 20


@dataclass(frozen=True, slots=True)
class FormerVerdict:
    """What stays of a verdict when a newer one replaces it. finding: the first one, with its position; empty: none."""

    state: ProofState
    by: str
    began_ms: int
    ended_ms: int
    from_index: int
    until_index: int
    findings_count: int
    not_checked_count: int
    finding: str


_UNITS = {
    Part.END: "ledgers",
    Part.ONCE: "entries",
    Part.COPIES: "entries",
    Part.FOLD: "producers",
    Part.ACKS: "subscriptions",
}


@dataclass(frozen=True, slots=True)
class TopicProof:
    """A proof, while it goes on and as a verdict. Times are in milliseconds since 1970; 0: not yet.

    by: the role that asked for it. replica: the metadata service that works on it; empty: none yet. end: ledger:entry
    of the last entry of the range; empty: not known yet, or nothing is stored. began: how often it has begun, 1 unless
    another process has taken it over. former: of a verdict: those before it, the newest first. further: see
    `core.formats.record_fields`.
    """

    topic_id: TopicId
    topic: str
    by: str
    asked_ms: int
    bytes_per_second: int
    cpu_percent: int
    state: ProofState = ProofState.QUEUED
    cancel: bool = False
    replica: str = ""
    began: int = 0
    began_ms: int = 0
    updated_ms: int = 0
    ended_ms: int = 0
    from_index: int = 0
    until_index: int = 0
    end: str = ""
    entries: int = 0
    resume_ledger: int = -1
    resume_entry: int = 0
    parts: tuple[PartProof, ...] = tuple(PartProof(part, unit) for part, unit in _UNITS.items())
    former: tuple[FormerVerdict, ...] = ()
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def ended(self) -> bool:
        return self.state not in (ProofState.QUEUED, ProofState.RUNNING)

    def part(self, part: Part) -> PartProof:
        return next(each for each in self.parts if each.part is part)

    @property
    def next_part(self) -> Part | None:
        """None: all are done."""
        return next((each.part for each in self.parts if each.state is not PartState.DONE), None)

    @property
    def findings_count(self) -> int:
        return sum(each.findings_count for each in self.parts)

    # --- how it goes on -----------------------------------------------------------------------------------------------

    def taken(self, replica: str, now_ms: int) -> "TopicProof":
        """This process works on it from now on."""
        parts = tuple(_begun_again(each) for each in self.parts)
        began_ms = self.began_ms or now_ms
        return replace(
            self, state=ProofState.RUNNING, replica=replica, began=self.began + 1, began_ms=began_ms, parts=parts
        )

    def ranged(self, *, from_index: int, until_index: int, end: Position | None, entries: int) -> "TopicProof":
        """What is proved. entries: of the log, in this range."""
        known = replace(
            self, from_index=from_index, until_index=until_index, end="" if end is None else str(end), entries=entries
        )
        return known.progressed(Part.ONCE, 0, entries).progressed(Part.COPIES, 0, entries)

    def trimmed(self, from_index: int) -> "TopicProof":
        """Retention has deleted the messages below this index: they leave the range."""
        return replace(self, from_index=max(self.from_index, from_index))

    def begun(self, part: Part) -> "TopicProof":
        return self._with(replace(self.part(part), state=PartState.RUNNING))

    def progressed(self, part: Part, done: int, of: int | None = None) -> "TopicProof":
        known = self.part(part)
        return self._with(replace(known, done=done, of=known.of if of is None else of))

    def copies_compared(self, entries: int, thin: int, place: Position) -> "TopicProof":
        """place: where the part goes on, here or in another process."""
        known = self.part(Part.COPIES)
        compared = self._with(replace(known, done=known.done + entries, thin=known.thin + thin))
        return replace(compared, resume_ledger=place.ledger_id, resume_entry=place.entry_id)

    def found(self, part: Part, findings: Sequence[Finding], count: int | None = None) -> "TopicProof":
        """count: of all; None: these are all."""
        known = self.part(part)
        kept = [_kept(each) for each in findings[: max(0, KEPT_MAX - len(known.findings))]]
        total = known.findings_count + (len(findings) if count is None else count)
        return self._with(replace(known, findings=(*known.findings, *kept), findings_count=total))

    def left_out(self, part: Part, reasons: Iterable[str]) -> "TopicProof":
        """Something of the part was not checked. A reason that is known counts once."""
        known = self.part(part)
        shown = (each[:CHARACTERS_MAX] for each in reasons)
        new = [each for each in dict.fromkeys(shown) if each not in known.not_checked]
        kept = (*known.not_checked, *new)[:KEPT_MAX]
        return self._with(replace(known, not_checked=kept, not_checked_count=known.not_checked_count + len(new)))

    def done(self, part: Part) -> "TopicProof":
        return self._with(replace(self.part(part), state=PartState.DONE))

    # --- the end ------------------------------------------------------------------------------------------------------

    def concluded(self, now_ms: int) -> "TopicProof":
        """With its verdict: no part is worked on any more. What is not done is named as not checked."""
        known = self
        for each in self.parts:
            if each.state is not PartState.DONE and not each.not_checked:
                known = known.left_out(each.part, [f"{each.part.value}: not read"])
        if known.findings_count:
            state = ProofState.FAILED
        elif any(each.not_checked_count for each in known.parts):
            state = ProofState.INCOMPLETE
        else:
            state = ProofState.PROVED
        return replace(known, state=state, ended_ms=now_ms, updated_ms=now_ms)

    def cancelled(self, now_ms: int) -> "TopicProof":
        """What was found until then stays a verdict: a damaged message is damaged, whoever stops looking."""
        known = self.concluded(now_ms)
        return known if known.state is ProofState.FAILED else replace(known, state=ProofState.CANCELLED)

    def after(self, former: "TopicProof") -> "TopicProof":
        """This verdict, which replaces that one and remembers it. If there are too many, the oldest that found nothing
        goes first: a later verdict hides no earlier failure."""
        known = [former.remembered(), *former.former]
        while len(known) > FORMER_MAX:
            sound = [each for each in known if each.state is not ProofState.FAILED]
            known.remove((sound or known)[-1])
        return replace(self, former=tuple(known))

    def remembered(self) -> FormerVerdict:
        """What stays of this verdict."""
        found = next((each for part in self.parts for each in part.findings), None)
        return FormerVerdict(
            state=self.state,
            by=self.by,
            began_ms=self.began_ms,
            ended_ms=self.ended_ms,
            from_index=self.from_index,
            until_index=self.until_index,
            findings_count=self.findings_count,
            not_checked_count=sum(each.not_checked_count for each in self.parts),
            finding="" if found is None else f"{found.position} {found.message}".strip()[:CHARACTERS_MAX],
        )

    def _with(self, part: PartProof) -> "TopicProof":
        return replace(self, parts=tuple(part if each.part is part.part else each for each in self.parts))


def _begun_again(part: PartProof) -> PartProof:
    if part.state is PartState.DONE or part.part is Part.COPIES:
        return part
    return PartProof(part.part, part.unit, of=part.of)


def _kept(finding: Finding) -> ProofFinding:
    position = "" if finding.position is None else str(finding.position)
    return ProofFinding(finding.rule, position, finding.message[:CHARACTERS_MAX])
