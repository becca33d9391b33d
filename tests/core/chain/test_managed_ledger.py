"""A managed ledger: when the next ledger is opened, and what closes or loses the open one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from oncelog.core.chain.managed_ledger import (
    AckQuorumLost,
    EntriesAnswered,
    LedgerEffect,
    LedgerEvent,
    ManagedLedger,
    ManagedLedgerState,
    MemberLost,
    SendAdds,
)
from oncelog.core.chain.next_ledger import (
    ClaimLedgerId,
    DeleteLedgers,
    LedgerIdClaimed,
    LedgerPurpose,
    ManagedLedgerSettings,
    NextLedger,
    NextState,
)
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.head import LedgerHead
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.records.records import RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from tests.core.builders import TOPIC, A, B, C, D, checksum

LOG, OK = LedgerPurpose.LOG, WriteStatus.OK
SETTINGS = ManagedLedgerSettings(LOG, TOPIC, OwnerEpoch(1), 3, 2, checksum)


class Linking(NamedTuple):
    ledger_id: LedgerId


class Confirmed(NamedTuple):
    ledger_id: LedgerId
    last_add_confirmed: EntryId


class LedgerClosed(NamedTuple):
    failed: bool


class ManagedLedgerLost(NamedTuple):
    pass


Outcome = LedgerEffect | Linking | Confirmed | LedgerClosed | ManagedLedgerLost


class Recorded:
    """A managed ledger, and what each call leads to: its effects and the calls of its user, in order."""

    def __init__(self, nodes: StorageNodesUpdated, last: int, settings: ManagedLedgerSettings = SETTINGS) -> None:
        self._out: list[Outcome] = []
        self.now_ms = 0
        #: {(ledger, state): the write of this record}
        self._writes: dict[tuple[int, LedgerState], WriteRecord[LedgerKey, LedgerMetadata]] = {}
        #: whether ledgers begin with heads
        self.heads = False
        self.next = NextLedger(settings, last_ledger=LedgerId(last), nodes=nodes, emit=self.emit)
        self.core = ManagedLedger(self.next, self, self)
        self._handlers: dict[type, Callable[[Any], None]] = {
            LedgerIdClaimed: self.core.id_claimed,
            EntriesAnswered: self.core.entries_answered,
            MemberLost: self.core.member_lost,
            RecordWritten: self.core.record_written,
        }

    @property
    def open(self) -> bool:
        return self.core.open

    @property
    def state(self) -> ManagedLedgerState:
        return self.core.state

    def take(self) -> list[Outcome]:
        taken = self._out.copy()
        self._out.clear()
        return taken

    def handle(self, event: LedgerEvent) -> list[Outcome]:
        self._handlers[type(event)](event)
        return self.take()

    def update_nodes(self, nodes: StorageNodesUpdated) -> list[Outcome]:
        self.core.update_nodes(nodes)
        return self.take()

    def open_next(self) -> list[Outcome]:
        self.core.open_next()
        return self.take()

    def linked(self) -> list[Outcome]:
        self.core.linked()
        return self.take()

    def roll(self) -> list[Outcome]:
        self.core.roll()
        return self.take()

    def finish(self) -> list[Outcome]:
        self.core.finish()
        return self.take()

    def check_invariants(self) -> None:
        self.core.check_invariants()

    def emit(self, effect: LedgerEffect) -> None:
        self._out.append(effect)
        if isinstance(effect, WriteRecord):
            self._writes[effect.key.ledger_id, effect.value.state] = effect

    def created(self, number: int, status: WriteStatus = OK) -> RecordWritten[LedgerKey, LedgerMetadata]:
        """The answer to the creation of this ledger's record."""
        return self._writes[number, LedgerState.OPEN].answered(status)

    def closed(self, number: int, status: WriteStatus = OK) -> RecordWritten[LedgerKey, LedgerMetadata]:
        """The answer to the write that closes this ledger."""
        return self._writes[number, LedgerState.CLOSED].answered(status)

    # --- LedgerUser ---------------------------------------------------------------------------------------------------

    def link_ledger(self, ledger_id: LedgerId) -> None:
        self._out.append(Linking(ledger_id))

    def head(self, metadata: LedgerMetadata) -> LedgerHead | None:
        return LedgerHead("t", metadata.members, metadata.ack_quorum, 1, A) if self.heads else None

    def confirmed(self, ledger_id: LedgerId, last_add_confirmed: EntryId) -> None:
        self._out.append(Confirmed(ledger_id, last_add_confirmed))

    def ledger_closed(self, *, failed: bool) -> None:
        self._out.append(LedgerClosed(failed))

    def ledger_lost(self) -> None:
        self._out.append(ManagedLedgerLost())


def managed_ledger(*live: Incarnation, absent: tuple[Incarnation, ...] = (), last: int = 4) -> Recorded:
    return Recorded(StorageNodesUpdated(live or (A, B, C), absent), last)


def created(core: Recorded, number: int = 5) -> LedgerMetadata:
    """Open the next ledger, up to the creation of its record."""
    assert core.open_next() == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(number)))
    assert isinstance(create, WriteRecord)
    return create.value


def opened(core: Recorded, number: int = 5) -> LedgerMetadata:
    metadata = created(core, number)
    assert core.handle(core.created(number)) == [Linking(LedgerId(number))]
    assert core.linked() == []
    assert core.open
    return metadata


def sealed(core: Recorded, next_number: int = 6) -> list[Outcome]:
    """Roll until the next ledger is ready. Returns the resulting effects."""
    assert core.roll() == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(next_number)))
    assert isinstance(create, WriteRecord)
    return core.handle(core.created(next_number))


def append(core: Recorded, count: int = 1) -> SendAdds:
    for _ in range(count):
        core.core.append(EntryKind.MESSAGES, b"body", count=1)
    core.core.flush()
    (sent,) = core.take()
    assert isinstance(sent, SendAdds)
    return sent


def answered(
    member: Incarnation, *entries: int, ledger: int = 5, status: AppendStatus = AppendStatus.OK
) -> EntriesAnswered:
    return EntriesAnswered(LedgerId(ledger), member, [EntryId(i) for i in entries], status)


def closing(metadata: LedgerMetadata, end: int) -> WriteRecord[LedgerKey, LedgerMetadata]:
    return WriteRecord(LedgerKey(metadata.ledger_id), metadata.closed(end=EntryId(end), length=4 * (end + 1)), 0)


# --- opening ----------------------------------------------------------------------------------------------------------


def test_one_ledger_from_its_claim_to_its_first_confirmation() -> None:
    """Id, record, link, entries to every member, answers of the ack quorum."""
    core = managed_ledger()
    opened(core)
    send = append(core, 2)
    assert set(send.members) == {A, B, C}
    assert [add.entry_id for add in send.adds] == [0, 1]
    assert core.handle(answered(A, 0, 1)) == []
    assert core.handle(answered(C, 0, 1)) == [Confirmed(LedgerId(5), EntryId(1))]


@pytest.mark.hazard("block-claimed-twice")
def test_id_not_above_the_last_is_discarded() -> None:
    """The counter went backwards, or the claim is old: the positions of a topic must ascend."""
    core = managed_ledger(last=7)
    core.open_next()
    for number in (6, 7):
        assert core.handle(LedgerIdClaimed(LOG, LedgerId(number))) == [ClaimLedgerId(LOG)]
    assert isinstance(core.handle(LedgerIdClaimed(LOG, LedgerId(8)))[0], WriteRecord)


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_id_whose_record_may_exist_is_discarded(status: WriteStatus) -> None:
    """No list names the id; the next attempt uses another one."""
    core = managed_ledger()
    created(core)
    assert core.handle(core.created(5, status)) == [ClaimLedgerId(LOG)]
    assert core.handle(core.created(5)) == []
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(6)))
    assert isinstance(create, WriteRecord)
    assert create.value.ledger_id == 6


def test_next_ledger_waits_for_enough_nodes() -> None:
    """Then it gets a new id: a node that has registered since may have a ledger with the former one (hazard
    ledger-id-given-twice)."""
    core = managed_ledger(A)
    core.open_next()
    assert core.handle(LedgerIdClaimed(LOG, LedgerId(5))) == []
    assert core.next.state is NextState.WAITING
    assert core.update_nodes(StorageNodesUpdated((A,), (B, C))) == []
    assert core.update_nodes(StorageNodesUpdated((A, B), (C,))) == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(6)))
    assert isinstance(create, WriteRecord)
    assert set(create.value.members) == {A, B, C}


@pytest.mark.hazard("ledger-id-given-twice")
def test_node_that_registers_after_the_id_was_requested_is_no_live_member() -> None:
    """It may have a ledger of this id. With too few others the id is discarded."""
    core = managed_ledger(A, B, C)
    core.open_next()
    core.update_nodes(StorageNodesUpdated((A, B, C, D), ()))
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(5)))
    assert isinstance(create, WriteRecord)
    assert set(create.value.members) == {A, B, C}
    core = managed_ledger(A, B)
    core.open_next()
    core.update_nodes(StorageNodesUpdated((A, C, D), ()))
    assert core.handle(LedgerIdClaimed(LOG, LedgerId(5))) == [ClaimLedgerId(LOG)]


def test_absent_member_gets_no_entries() -> None:
    """It completes the list of members; repair completes its copy."""
    core = managed_ledger(A, B, absent=(C,))
    opened(core)
    assert set(append(core).members) == {A, B}
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LedgerId(5), EntryId(0))]


def test_read_only_nodes_complete_a_list_but_get_no_entries() -> None:
    """A cluster of three continues with one full node. With a fourth node, the full one is not even a member."""
    core = managed_ledger(A, B)
    core.update_nodes(StorageNodesUpdated((A, B), read_only=(C,)))
    assert set(created(core).members) == {A, B, C}
    core.handle(core.created(5))
    core.linked()
    assert set(append(core).members) == {A, B}
    other = managed_ledger(A, B)
    other.update_nodes(StorageNodesUpdated((A, B, D), read_only=(C,)))
    assert set(created(other).members) == {A, B, D}


def test_ledger_without_its_ack_quorum_fails_when_it_is_linked() -> None:
    """With too few members the ledger would wait for ever: no stream is left that could break."""
    core = managed_ledger()
    metadata = created(core)
    core.handle(core.created(5))
    core.update_nodes(StorageNodesUpdated((A,), (B, C)))
    assert core.linked() == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]
    assert core.handle(core.closed(5)) == [LedgerClosed(failed=False)]


def test_next_ledger_opens_only_after_the_last_is_closed() -> None:
    """Two open ledgers of one log would have no order."""
    core = managed_ledger()
    opened(core)
    with pytest.raises(InvariantViolated):
        core.open_next()


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_planned_roll_waits_for_the_last_answer() -> None:
    """No entry is given up, so no session must end."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    assert sealed(core) == []
    with pytest.raises(InvariantViolated):
        append(core)
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LedgerId(5), EntryId(0)), closing(metadata, 0)]
    assert core.handle(core.closed(5)) == [LedgerClosed(failed=False)]
    assert core.open_next() == [Linking(LedgerId(6))]
    assert core.linked() == []
    append(core)


def test_batches_are_accepted_until_the_next_ledger_is_ready() -> None:
    """Producers wait only for the close and the link. If no ledger can be created, they do not wait at all."""
    core = managed_ledger()
    metadata = opened(core)
    core.roll()
    append(core)
    assert core.roll() == [], "it has begun"
    core.update_nodes(StorageNodesUpdated((A,), (B, C)))
    assert core.handle(LedgerIdClaimed(LOG, LedgerId(6))) == []
    append(core)
    assert core.update_nodes(StorageNodesUpdated((A, B, C))) == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(7)))
    assert isinstance(create, WriteRecord)
    append(core)
    for member in (A, B):
        core.handle(answered(member, 0, 1, 2))
    assert core.handle(core.created(7)) == [closing(metadata, 2)]


def test_idle_ledger_rolls_at_once() -> None:
    """No answer is outstanding."""
    core = managed_ledger()
    metadata = opened(core)
    assert sealed(core) == [closing(metadata, -1)]
    assert core.roll() == []


def test_failure_during_a_roll_closes_at_last_add_confirmed() -> None:
    """The outstanding answers will not come."""
    core = managed_ledger()
    metadata = opened(core)
    append(core, 2)
    core.handle(answered(A, 0))
    core.handle(answered(B, 0))
    sealed(core)
    core.handle(MemberLost(LedgerId(5), A))
    assert core.handle(MemberLost(LedgerId(5), B)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, 0)]
    assert core.handle(core.closed(5)) == [LedgerClosed(failed=True)]


def test_failure_before_the_roll_uses_the_prepared_ledger() -> None:
    """The next ledger can be used, whatever ended the last one. The roll is over with it."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    core.roll()
    core.handle(MemberLost(LedgerId(5), A))
    assert core.handle(MemberLost(LedgerId(5), B)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]
    core.handle(core.closed(5))
    assert core.open_next() == []
    assert isinstance(core.handle(LedgerIdClaimed(LOG, LedgerId(6)))[0], WriteRecord)
    assert core.handle(core.created(6)) == [Linking(LedgerId(6))]
    core.linked()
    append(core)


def test_prepared_ledger_is_replaced_when_its_members_leave() -> None:
    """With two of its three members gone, it would fail as soon as it is open. Its record is deleted."""
    core = managed_ledger()
    opened(core)
    append(core)
    sealed(core)
    core.update_nodes(StorageNodesUpdated((A, D), (B, C)))
    for member in (A, B):
        core.handle(answered(member, 0))
    core.handle(core.closed(5))
    assert core.open_next() == [DeleteLedgers((LedgerId(6),)), ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(7)))
    assert isinstance(create, WriteRecord)
    assert set(create.value.members) > {A, D}


def test_last_ledger_closes_without_a_next_one() -> None:
    """A ledger that was being prepared for a roll is not needed any more, and its record is deleted."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    core.roll()
    core.handle(LedgerIdClaimed(LOG, LedgerId(6)))
    assert core.finish() == []
    assert core.handle(core.created(6)) == [DeleteLedgers((LedgerId(6),))]
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LedgerId(5), EntryId(0)), closing(metadata, 0)]


# --- failing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [AppendStatus.WRONG_INCARNATION, AppendStatus.CORRUPT, AppendStatus.READ_ONLY, AppendStatus.TOO_MANY_REQUESTS],
)
def test_one_failing_member_delays_nothing(status: AppendStatus) -> None:
    """It is absent for the rest of the ledger. A second failing member ends the ledger at last_add_confirmed."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    assert core.handle(answered(A, 0, status=status)) == []
    assert set(append(core).members) == {B, C}
    assert core.handle(answered(B, 0, status=status)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]


def test_closing_ledger_confirms_nothing() -> None:
    """The record is being written with an end, so later answers do not count."""
    core = managed_ledger()
    opened(core)
    append(core)
    core.handle(answered(A, 0))
    core.handle(MemberLost(LedgerId(5), B))
    core.handle(MemberLost(LedgerId(5), C))
    assert core.handle(answered(B, 0)) == []
    assert core.handle(answered(C, 0, status=AppendStatus.FENCED)) == []


def test_retired_member_is_lost() -> None:
    """It does not come back; the ledger continues with the other members."""
    core = managed_ledger()
    opened(core)
    assert core.update_nodes(StorageNodesUpdated((A, B, D), retired=(C,))) == []
    assert set(append(core).members) == {A, B}


# --- losing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [AppendStatus.FENCED, AppendStatus.NOT_WRITABLE, AppendStatus.CONFLICTING])
def test_fenced_ledger_is_not_followed_by_another(status: AppendStatus) -> None:
    """The record is read first: a deposed owner that rolled would acknowledge entries that no one reads."""
    core = managed_ledger()
    opened(core)
    append(core)
    core.handle(answered(A, 0))
    (lost,) = core.handle(answered(B, 0, status=status))
    assert isinstance(lost, ManagedLedgerLost)
    assert core.handle(answered(C, 0)) == []
    assert core.handle(answered(C, 0, status=status)) == []
    assert core.roll() == []
    with pytest.raises(InvariantViolated):
        core.open_next()


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_close_that_is_not_ok_loses_the_managed_ledger(status: WriteStatus) -> None:
    """In recovery or closed by another process, or closed by itself with a lost reply: the record decides."""
    core = managed_ledger()
    opened(core)
    sealed(core)
    (lost,) = core.handle(core.closed(5, status))
    assert isinstance(lost, ManagedLedgerLost)
    assert core.state is ManagedLedgerState.LOST
    assert core.handle(core.closed(5)) == []


# --- late -------------------------------------------------------------------------------------------------------------


def test_late_completions_are_recognised_by_their_ledger() -> None:
    """Responses for the ledger before, a second claim, a member of another ledger."""
    core = managed_ledger()
    opened(core)
    sealed(core)
    core.handle(core.closed(5))
    core.open_next()
    core.linked()
    append(core)
    for event in (
        LedgerIdClaimed(LOG, LedgerId(9)),
        core.created(6),
        core.closed(5),
        answered(A, 0),
        answered(B, 0),
        answered(B, 0, status=AppendStatus.FENCED),
        MemberLost(LedgerId(5), A),
        MemberLost(LedgerId(5), B),
    ):
        assert core.handle(event) == []
    core.check_invariants()
    assert set(append(core).members) == {A, B, C}
