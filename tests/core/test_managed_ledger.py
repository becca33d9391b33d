"""A list of ledgers, one open after the other: what opens the next one, and what never does."""

import pytest

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.managed_ledger import (
    AckQuorumLost,
    CloseLedger,
    Confirmed,
    EntriesAnswered,
    LedgerCloseAnswered,
    LedgerClosed,
    LedgerEffect,
    LedgerNotification,
    Linking,
    ManagedLedger,
    ManagedLedgerLost,
    ManagedLedgerState,
    MemberLost,
    SendAdds,
)
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.next_ledger import (
    ClaimLedgerId,
    CreateLedger,
    DeleteLedgers,
    LedgerCreated,
    LedgerIdClaimed,
    LedgerPurpose,
    ManagedLedgerSettings,
    NextLedger,
    NextState,
)
from oncelog.core.store_status import WriteStatus
from tests.core.builders import TOPIC, A, B, C, D, checksum

LOG, OK = LedgerPurpose.LOG, WriteStatus.OK
SETTINGS = ManagedLedgerSettings(LOG, TOPIC, OwnerEpoch(1), 3, 2, checksum)


def managed_ledger(*live: Incarnation, absent: tuple[Incarnation, ...] = (), last: int = 4) -> ManagedLedger:
    nodes = StorageNodesUpdated(live or (A, B, C), absent)
    return ManagedLedger(NextLedger(SETTINGS, last_ledger=LedgerId(last), nodes=nodes))


def created(core: ManagedLedger, number: int = 5) -> LedgerMetadata:
    """Open the next ledger up to its record."""
    assert core.open_next() == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(number)))
    assert isinstance(create, CreateLedger)
    return create.metadata


def opened(core: ManagedLedger, number: int = 5) -> LedgerMetadata:
    metadata = created(core, number)
    assert core.handle(LedgerCreated(LOG, LedgerId(number), OK)) == [Linking(LOG, LedgerId(number))]
    assert core.linked() == []
    assert core.open
    return metadata


def sealed(core: ManagedLedger, next_number: int = 6) -> list[LedgerEffect | LedgerNotification]:
    """Roll up to the moment at which the next ledger is ready; what comes of that."""
    assert core.roll() == [ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(next_number)))
    assert isinstance(create, CreateLedger)
    return core.handle(LedgerCreated(LOG, LedgerId(next_number), OK))


def append(core: ManagedLedger, count: int = 1) -> SendAdds:
    adds = [
        core.append(EntryKind.MESSAGES, b"body", base_index=0, skip_first=0, count=1, now_ms=0) for _ in range(count)
    ]
    return core.send(adds)


def answered(
    member: Incarnation, *entries: int, ledger: int = 5, status: AppendStatus = AppendStatus.OK
) -> EntriesAnswered:
    return EntriesAnswered(LedgerId(ledger), member, [EntryId(i) for i in entries], status)


def closing(metadata: LedgerMetadata, end: int) -> CloseLedger:
    return CloseLedger(LOG, metadata.closed(end=EntryId(end), length=4 * (end + 1)), 0)


# --- opening ----------------------------------------------------------------------------------------------------------


def test_one_ledger_from_its_claim_to_its_first_confirmation() -> None:
    """Id, record, link, entries to every member, the ack quorum's answers."""
    core = managed_ledger()
    opened(core)
    send = append(core, 2)
    assert set(send.members) == {A, B, C}
    assert [add.entry_id for add in send.adds] == [0, 1]
    assert core.handle(answered(A, 0, 1)) == []
    assert core.handle(answered(C, 0, 1)) == [Confirmed(LOG, LedgerId(5), EntryId(1))]


@pytest.mark.hazard(4)
def test_id_not_above_the_last_is_thrown_away() -> None:
    """A counter that ran backwards, or a claim of long ago: positions of a topic ascend."""
    core = managed_ledger(last=7)
    core.open_next()
    for number in (6, 7):
        assert core.handle(LedgerIdClaimed(LOG, LedgerId(number))) == [ClaimLedgerId(LOG)]
    assert isinstance(core.handle(LedgerIdClaimed(LOG, LedgerId(8)))[0], CreateLedger)


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_record_that_may_exist_wastes_its_id(status: WriteStatus) -> None:
    """No list names it; the next try has another id."""
    core = managed_ledger()
    created(core)
    assert core.handle(LedgerCreated(LOG, LedgerId(5), status)) == [ClaimLedgerId(LOG)]
    assert core.handle(LedgerCreated(LOG, LedgerId(5), OK)) == []
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(6)))
    assert isinstance(create, CreateLedger)
    assert create.metadata.ledger_id == 6


def test_too_few_nodes_are_waited_for() -> None:
    """And the claimed id is used then."""
    core = managed_ledger(A)
    core.open_next()
    assert core.handle(LedgerIdClaimed(LOG, LedgerId(5))) == []
    assert core.next.state is NextState.WAITING
    assert core.update_nodes(StorageNodesUpdated((A,), (B, C))) == []
    (create,) = core.update_nodes(StorageNodesUpdated((A, B), (C,)))
    assert isinstance(create, CreateLedger)
    assert set(create.metadata.members) == {A, B, C}


def test_absent_filler_gets_nothing() -> None:
    """It completes the list; repair completes its copy."""
    core = managed_ledger(A, B, absent=(C,))
    opened(core)
    assert set(append(core).members) == {A, B}
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LOG, LedgerId(5), EntryId(0))]


def test_read_only_nodes_fill_a_list_and_get_nothing() -> None:
    """A cluster of three goes on with one that has no room; with one more, that one is not even named."""
    core = managed_ledger(A, B)
    core.update_nodes(StorageNodesUpdated((A, B), read_only=(C,)))
    assert set(created(core).members) == {A, B, C}
    core.handle(LedgerCreated(LOG, LedgerId(5), OK))
    core.linked()
    assert set(append(core).members) == {A, B}
    other = managed_ledger(A, B)
    other.update_nodes(StorageNodesUpdated((A, B, D), read_only=(C,)))
    assert set(created(other).members) == {A, B, D}


def test_members_gone_before_the_link_fail_it_at_once() -> None:
    """Open with too few members, it would wait for ever: nobody is left whose stream could break."""
    core = managed_ledger()
    metadata = created(core)
    core.handle(LedgerCreated(LOG, LedgerId(5), OK))
    core.update_nodes(StorageNodesUpdated((A,), (B, C)))
    assert core.linked() == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]
    assert core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK)) == [
        LedgerClosed(LOG, LedgerId(5), EntryId(-1), failed=False)
    ]


def test_next_ledger_only_behind_a_closed_one() -> None:
    """Two open ledgers of one log have no order."""
    core = managed_ledger()
    opened(core)
    with pytest.raises(InvariantViolated):
        core.open_next()


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_planned_roll_waits_for_the_last_answer() -> None:
    """Nothing is given up: no session has to end."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    assert sealed(core) == []
    with pytest.raises(InvariantViolated):
        append(core)
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LOG, LedgerId(5), EntryId(0)), closing(metadata, 0)]
    assert core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK)) == [
        LedgerClosed(LOG, LedgerId(5), EntryId(0), failed=False)
    ]
    assert core.open_next() == [Linking(LOG, LedgerId(6))]
    assert core.linked() == []
    append(core)


def test_batches_are_taken_until_the_next_ledger_is_ready() -> None:
    """Producers wait for the close and the link alone, and where no ledger can be made, for nothing."""
    core = managed_ledger()
    metadata = opened(core)
    core.roll()
    append(core)
    assert core.roll() == [], "it has begun"
    core.update_nodes(StorageNodesUpdated((A,), (B, C)))
    assert core.handle(LedgerIdClaimed(LOG, LedgerId(6))) == []
    append(core)
    (create,) = core.update_nodes(StorageNodesUpdated((A, B, C)))
    assert isinstance(create, CreateLedger)
    append(core)
    for member in (A, B):
        core.handle(answered(member, 0, 1, 2))
    assert core.handle(LedgerCreated(LOG, LedgerId(6), OK)) == [closing(metadata, 2)]


def test_idle_ledger_rolls_at_once() -> None:
    """There is no answer to wait for."""
    core = managed_ledger()
    metadata = opened(core)
    assert sealed(core) == [closing(metadata, -1)]
    assert core.roll() == []


def test_failure_during_a_roll_closes_at_what_is_confirmed() -> None:
    """The last answers will not come."""
    core = managed_ledger()
    metadata = opened(core)
    append(core, 2)
    core.handle(answered(A, 0))
    core.handle(answered(B, 0))
    sealed(core)
    core.handle(MemberLost(LedgerId(5), A))
    assert core.handle(MemberLost(LedgerId(5), B)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, 0)]
    assert core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK)) == [
        LedgerClosed(LOG, LedgerId(5), EntryId(0), failed=True)
    ]


def test_failure_before_the_roll_takes_what_was_begun_for_it() -> None:
    """The next ledger is the same, whatever ended the last one; the roll is over with it."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    core.roll()
    core.handle(MemberLost(LedgerId(5), A))
    assert core.handle(MemberLost(LedgerId(5), B)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]
    core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK))
    assert core.open_next() == []
    assert isinstance(core.handle(LedgerIdClaimed(LOG, LedgerId(6)))[0], CreateLedger)
    assert core.handle(LedgerCreated(LOG, LedgerId(6), OK)) == [Linking(LOG, LedgerId(6))]
    core.linked()
    append(core)


def test_ledger_that_was_made_ready_is_made_anew_when_its_members_have_gone_meanwhile() -> None:
    """Two of its three: it would fail as soon as it is open. Its record goes."""
    core = managed_ledger()
    opened(core)
    append(core)
    sealed(core)
    core.update_nodes(StorageNodesUpdated((A, D), (B, C)))
    for member in (A, B):
        core.handle(answered(member, 0))
    core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK))
    assert core.open_next() == [DeleteLedgers((LedgerId(6),)), ClaimLedgerId(LOG)]
    (create,) = core.handle(LedgerIdClaimed(LOG, LedgerId(7)))
    assert isinstance(create, CreateLedger)
    assert set(create.metadata.members) > {A, D}


def test_last_ledger_closes_without_a_next_one() -> None:
    """One that was being made for a roll is not needed any more, and leaves nothing behind."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    core.roll()
    core.handle(LedgerIdClaimed(LOG, LedgerId(6)))
    assert core.finish() == []
    assert core.handle(LedgerCreated(LOG, LedgerId(6), OK)) == [DeleteLedgers((LedgerId(6),))]
    core.handle(answered(A, 0))
    assert core.handle(answered(B, 0)) == [Confirmed(LOG, LedgerId(5), EntryId(0)), closing(metadata, 0)]


# --- failing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [AppendStatus.WRONG_INCARNATION, AppendStatus.CORRUPT, AppendStatus.READ_ONLY, AppendStatus.TOO_MANY_REQUESTS],
)
def test_one_failing_member_slows_nothing(status: AppendStatus) -> None:
    """It is absent for the rest of the ledger; the second one ends it, at what is confirmed."""
    core = managed_ledger()
    metadata = opened(core)
    append(core)
    assert core.handle(answered(A, 0, status=status)) == []
    assert set(append(core).members) == {B, C}
    assert core.handle(answered(B, 0, status=status)) == [AckQuorumLost(LOG, LedgerId(5)), closing(metadata, -1)]


def test_nothing_is_confirmed_while_it_closes() -> None:
    """The record is being written with an end: an answer too late is for nobody."""
    core = managed_ledger()
    opened(core)
    append(core)
    core.handle(answered(A, 0))
    core.handle(MemberLost(LedgerId(5), B))
    core.handle(MemberLost(LedgerId(5), C))
    assert core.handle(answered(B, 0)) == []
    assert core.handle(answered(C, 0, status=AppendStatus.FENCED)) == []


def test_superseded_member_is_lost() -> None:
    """It does not come back; the ledger goes on with the others."""
    core = managed_ledger()
    opened(core)
    assert core.update_nodes(StorageNodesUpdated((A, B, D), superseded=(C,))) == []
    assert set(append(core).members) == {A, B}


# --- losing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [AppendStatus.FENCED, AppendStatus.NOT_WRITABLE, AppendStatus.CONFLICTING])
def test_fenced_ledger_is_never_answered_by_another_one(status: AppendStatus) -> None:
    """The record is read first: a deposed owner that rolled would acknowledge where nobody looks."""
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
def test_close_that_is_not_plainly_ok_is_lost(status: WriteStatus) -> None:
    """In recovery by another, closed by another, or by oneself with a lost reply: the record knows."""
    core = managed_ledger()
    opened(core)
    sealed(core)
    (lost,) = core.handle(LedgerCloseAnswered(LOG, LedgerId(5), status))
    assert isinstance(lost, ManagedLedgerLost)
    assert core.state is ManagedLedgerState.LOST
    assert core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK)) == []


# --- late -------------------------------------------------------------------------------------------------------------


def test_late_completions_are_recognised_by_their_ledger() -> None:
    """Answers of the ledger before, a second claim, a member of another ledger."""
    core = managed_ledger()
    opened(core)
    sealed(core)
    core.handle(LedgerCloseAnswered(LOG, LedgerId(5), OK))
    core.open_next()
    core.linked()
    append(core)
    for event in (
        LedgerIdClaimed(LOG, LedgerId(9)),
        LedgerCreated(LOG, LedgerId(6), OK),
        LedgerCloseAnswered(LOG, LedgerId(5), OK),
        LedgerCloseAnswered(LOG, LedgerId(6), OK),
        answered(A, 0),
        answered(B, 0),
        answered(B, 0, status=AppendStatus.FENCED),
        MemberLost(LedgerId(5), A),
        MemberLost(LedgerId(5), B),
    ):
        assert core.handle(event) == []
    core.check_invariants()
    assert set(append(core).members) == {A, B, C}
