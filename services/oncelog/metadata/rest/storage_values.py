"""Response bodies of the routes about storage: nodes, ledgers, repair."""

from collections.abc import Callable, Sequence

from pydantic import BaseModel, Field

from oncelog.core.ids import TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.repair.ledger_health import copy_state, health_of
from oncelog.metadata_store.records.repair_store import RepairProgress

LEDGER_STATES = {LedgerState.OPEN: "open", LedgerState.IN_RECOVERY: "recovering", LedgerState.CLOSED: "closed"}


class StorageNodeReport(BaseModel):
    """A storage node: what it holds, what it lacks, and whether its copies are being moved."""

    incarnation: str
    address: str
    state: str = Field(description="live, joining (waits for its predecessor), away, retired, draining or removed")
    read_only: bool = Field(description="New ledgers store nothing on it")
    replaced_by: str | None = Field(description="Incarnation of the directory that came to its address")
    emptied: bool = Field(
        description="Retired or removed: other nodes hold all that it had. Until then it is a missing node to a restore"
    )
    ledgers: int = Field(description="Ledgers whose records name the node")
    debt: int = Field(description="Retired or draining: ledgers that live nodes could still copy and have not")
    waits_for: list[str] = Field(
        description="What the removal of a draining node waits for: the first ledgers, with their topics, and why each "
        "is still on it; or why the other nodes are not ready to go without it. Empty for other nodes"
    )
    damaged_ledgers: int | None = Field(
        description="Ledgers of which the node lacks entries, or may lack them; null: no answer"
    )
    erased_ledgers: int | None = Field(description="null: the node does not answer")
    stored_bytes: int | None = Field(description="null: the node does not answer")
    dead_bytes: int | None = Field(description="Bytes that compaction can give back; null: no answer")
    free_bytes: int | None = Field(description="null: not live")
    verified_ms: int | None = Field(
        description="When the node's last complete reading of its disk ended, milliseconds since 1970; null: not yet"
    )


class EntryRangeView(BaseModel):
    """Entries first to last, both inclusive."""

    first: int
    last: int


class LedgerRow(BaseModel):
    """A ledger in a list."""

    ledger_id: int
    topic: str = Field(description="Name of its topic; empty: this service has not read it yet, or it was deleted")
    state: str = Field(description="open, recovering or closed")
    health: str = Field(description="ok, unverified, under-replicated, unavailable, lost, frozen or unlisted")
    copies: int = Field(description="Members that are registered and have not reported damage")
    write_quorum: int
    entries: int | None = Field(description="null: the ledger is open")


class EndedLedger(BaseModel):
    """A ledger that the topic's owner closes without some of its storage nodes."""

    ledger_id: int
    gone: list[str] = Field(description="Storage nodes whose copies are given up")
    survivors: list[str] = Field(description="The other members; the ledger ends at what they hold")


class LedgerPage(BaseModel):
    """Some ledgers, by ascending id."""

    ledgers: list[LedgerRow]
    next_after: int | None = Field(description="`after` of the next page; null: this is the last page")


class CopyView(BaseModel):
    """A storage node that a ledger's record names."""

    incarnation: str
    role: str = Field(description="member or joining")
    state: str = Field(description="live, away, retired, draining or damaged")
    verified_ms: int | None = Field(
        description="When the node last began to read this copy from its disk and found it sound, milliseconds since "
        "1970; null: not since its start, or no answer"
    )


class LedgerReport(BaseModel):
    """The record of a ledger, and the state of its copies."""

    ledger_id: int
    topic: str
    topic_id: str
    state: str
    health: str
    whole: bool = Field(description="Every member has read all entries back from its disk")
    frozen: bool = Field(description="Sound copies differ: nothing is repaired or erased")
    last_entry: int | None = Field(description="null: the ledger is open; -1: it is empty")
    bytes: int | None = Field(description="Bytes of its messages; null: the ledger is open")
    write_quorum: int
    ack_quorum: int
    verified_ms: int | None = Field(
        description="The earliest `verified_ms` of its copies; null: one of them has none, or the ledger is not whole"
    )
    waiting_for: list[str] = Field(description="Absent storage nodes that may return with a copy")
    unavailable: list[EntryRangeView] = Field(
        description="Entries that cannot be read now. `last` -1: the ledger cannot be closed now"
    )
    lost: list[EntryRangeView]
    copies: list[CopyView]


class VerifiedCopy(BaseModel):
    """What one node read back from its disk."""

    incarnation: str
    answered: bool
    erased: bool
    sound: int = Field(description="Entries with a correct checksum")
    missing: int
    unreadable: int


class VerifyReport(BaseModel):
    """The entries first_entry to next_entry - 1 as the nodes read them back from their disks."""

    ledger_id: int
    first_entry: int
    next_entry: int
    last_entry: int
    done: bool = Field(description="The last entry is included")
    verified_ms: int
    differing_entry: int | None = Field(description="The first entry of which two sound copies differ")
    copies: list[VerifiedCopy]


class RunningRepairView(BaseModel):
    """A ledger that is being repaired."""

    ledger_id: int
    topic: str
    step: str
    entries_done: int
    entries_total: int
    began_ms: int


class StuckRepairView(BaseModel):
    """A ledger that cannot be repaired now."""

    ledger_id: int
    topic: str
    reason: str
    since_ms: int


_BY_COPIES = (
    "How many entries of closed ledgers have so many copies, by number. A copy is a registered storage node that has "
    "not reported damage in the ledger; an entry that was given up as lost has none"
)


class RepairSampleView(BaseModel):
    """The copies at one time."""

    at_ms: int
    left_bytes: int
    entries_by_copies: dict[str, int]


class RepairReport(BaseModel):
    """The progress of repair, as the elected replica last wrote it. Times: milliseconds since 1970."""

    status: str = Field(description="idle, repairing, paused, or none if no replica has been elected yet")
    paused: str = Field(description="Why nothing is repaired; empty unless paused")
    updated_ms: int
    under_replicated_ledgers: int
    unavailable_ledgers: int
    lost_ledgers: int
    frozen_ledgers: int
    debt_ledgers: int
    queued_ledgers: int
    oldest_ms: int | None = Field(description="Since when the ledger that waits longest needs repair; null: none does")
    bytes_per_s: int
    repaired_ledgers: int = Field(description="Since the replica was elected; so are the next two")
    repaired_entries: int
    repaired_bytes: int
    running: list[RunningRepairView]
    stuck: list[StuckRepairView]
    left_bytes: int = Field(description="Bytes of the copies of closed ledgers that are missing")
    entries_by_copies: dict[str, int] = Field(description=_BY_COPIES)
    history: list[RepairSampleView] = Field(description="The last hour, a sample each minute, the newest last")


class MayReplaceAnswer(BaseModel):
    """Whether the disk of a storage node may be replaced now without losing a message."""

    may_replace: bool
    incarnation: str
    reasons: list[str] = Field(description="Why not; empty if it may")


def ledger_row(record: LedgerMetadata, watch: ClusterWatch) -> LedgerRow:
    """As of the last look of the watch."""
    closed = record.state is LedgerState.CLOSED
    return LedgerRow(
        ledger_id=record.ledger_id,
        topic=watch.name_of(record.topic_id),
        state=LEDGER_STATES[record.state],
        health=health_of(record, watch.queue.assessment(record.ledger_id)).value,
        copies=sum(copy_state(record, node, watch.seen) == "live" for node in record.members),
        write_quorum=record.write_quorum,
        entries=record.end + 1 if closed else None,
    )


def repair_report(progress: RepairProgress, name_of: Callable[[TopicId], str]) -> RepairReport:
    """name_of: as of `ClusterWatch`."""
    status = "paused" if progress.paused else "repairing" if progress.running or progress.queued else "idle"
    return RepairReport(
        status=status,
        paused=progress.paused,
        updated_ms=progress.updated_ms,
        under_replicated_ledgers=progress.under_replicated,
        unavailable_ledgers=progress.unavailable,
        lost_ledgers=progress.lost,
        frozen_ledgers=progress.frozen,
        debt_ledgers=progress.debt,
        queued_ledgers=progress.queued,
        oldest_ms=progress.oldest_ms or None,
        bytes_per_s=progress.bytes_per_s,
        repaired_ledgers=progress.repaired_ledgers,
        repaired_entries=progress.repaired_entries,
        repaired_bytes=progress.repaired_bytes,
        running=[
            RunningRepairView(
                ledger_id=one.ledger_id,
                topic=name_of(one.topic_id),
                step=one.step,
                entries_done=one.entries_done,
                entries_total=one.entries_total,
                began_ms=one.began_ms,
            )
            for one in progress.running
        ],
        stuck=[
            StuckRepairView(
                ledger_id=one.ledger_id, topic=name_of(one.topic_id), reason=one.reason, since_ms=one.since_ms
            )
            for one in progress.stuck
        ],
        left_bytes=progress.left_bytes,
        entries_by_copies=_by_copies(progress.entries_by_copies),
        history=[
            RepairSampleView(
                at_ms=one.at_ms,
                left_bytes=one.left_bytes,
                entries_by_copies=_by_copies(one.entries_by_copies),
            )
            for one in progress.history
        ],
    )


def no_repair() -> RepairReport:
    """No replica was elected yet."""
    return RepairReport(
        status="none", paused="", updated_ms=0, under_replicated_ledgers=0, unavailable_ledgers=0, lost_ledgers=0,
        frozen_ledgers=0, debt_ledgers=0, queued_ledgers=0, oldest_ms=None, bytes_per_s=0, repaired_ledgers=0,
        repaired_entries=0, repaired_bytes=0, running=[], stuck=[], left_bytes=0, entries_by_copies={}, history=[],
    )  # fmt: skip


def _by_copies(entries: Sequence[int]) -> dict[str, int]:
    return {str(copies): count for copies, count in reversed(list(enumerate(entries)))}
