"""Whether a storage node may be replaced or decommissioned now."""

from collections.abc import Sequence

import pytest

from oncelog.core.formats.note import NotesDigest, NotesDigests
from oncelog.core.ids import NO_ENTRY, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeView, StorageNodes
from oncelog.core.repair.assessment import assess
from oncelog.core.repair.node_removal import (
    NAMED_MAX,
    MayReplace,
    decommission_refusal,
    drain_reason,
    keeps_draining,
    may_replace,
    notes_refusal,
)
from tests.core.repair.repair_world import LEDGER, A, B, C, D, closed


def healthy(*absent: Incarnation, silent: Sequence[Incarnation] = ()) -> StorageNodes:
    views = (NodeView(node, registered=node not in absent, silent=node in silent) for node in (A, B, C, D))
    return StorageNodes(views)


def undamaged(_: LedgerId) -> Sequence[Incarnation]:
    return ()


def ask(record: LedgerMetadata, nodes: StorageNodes | None = None) -> MayReplace:
    return may_replace(A, [record], nodes or healthy(), undamaged)


def test_node_may_be_replaced_when_every_ledger_is_whole_without_it() -> None:
    assert ask(closed(verified=True)) == MayReplace(A, allowed=True, blocking=0, blockers=())
    assert ask(closed(members=(B, C, D))).allowed


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (closed(), "not all read their copies back"),
        (closed(verified=True, frozen=True), "frozen"),
        (closed(verified=True, members=(A,)), "no other member"),
        (closed(state=LedgerState.OPEN, ack_quorum=1), "on this node alone"),
    ],
)
def test_ledger_that_needs_the_node_is_named(record: LedgerMetadata, reason: str) -> None:
    answer = ask(record)
    assert not answer.allowed
    assert answer.blockers[0].ledger_id == LEDGER
    assert reason in answer.blockers[0].reason


def test_open_ledger_with_two_other_copies_does_not_need_the_node() -> None:
    assert ask(closed(state=LedgerState.OPEN)).allowed


def test_empty_ledger_needs_no_node() -> None:
    assert ask(closed(end=NO_ENTRY, members=(A,))).allowed


@pytest.mark.parametrize("state", list(LedgerState))
def test_absent_or_damaged_other_member_forbids_it(state: LedgerState) -> None:
    """The three disks in turn: the next one waits until the copies of the one before are complete."""
    record = closed(verified=True, state=state)
    assert "b are not registered" in ask(record, healthy(B)).blockers[0].reason
    answer = may_replace(A, [record], healthy(), lambda _: (C,))
    assert "c have damaged entries" in answer.blockers[0].reason
    assert may_replace(A, [record], healthy(), lambda _: (A,)).allowed


@pytest.mark.parametrize("state", list(LedgerState))
def test_other_member_that_does_not_answer_forbids_it(state: LedgerState) -> None:
    """Its process was killed, and its session has not ended yet. Whether the node itself answers does not matter."""
    record = closed(verified=True, state=state)
    answer = ask(record, healthy(silent=(A, C)))
    assert answer.blockers[0].reason == "its other members c are registered, and do not answer"
    assert ask(record, healthy(silent=(A, D))).allowed


def test_registration_of_a_retired_directory_does_not_count() -> None:
    """It stays until the session of the lost node ends, and its successor has joined by then."""
    views = [NodeView(node, retired=node == B) for node in (A, B, C, D)]
    assert (
        "b are not registered, or were replaced" in ask(closed(verified=True), StorageNodes(views)).blockers[0].reason
    )


def test_at_most_ten_ledgers_are_named() -> None:
    answer = may_replace(A, [closed(ledger_id=LedgerId(n)) for n in range(25)], healthy(), undamaged)
    assert (answer.blocking, len(answer.blockers)) == (25, NAMED_MAX)


@pytest.mark.hazard("too-few-nodes")
def test_decommission_is_refused_below_the_write_quorum() -> None:
    assert decommission_refusal(A, healthy(), write_quorum=3) is None
    refusal = decommission_refusal(A, healthy(B), write_quorum=3)
    assert refusal is not None
    assert "2 other storage nodes are left" in refusal
    assert decommission_refusal(Incarnation("x"), healthy(), write_quorum=3) is not None


ALL, SOME = NotesDigests(NotesDigest(7, 99)), NotesDigests(NotesDigest(6, 11))
FEWER_DELETIONS = NotesDigests(NotesDigest(7, 99), NotesDigest(1, 5))
OLDER_NODE = NotesDigests(NotesDigest(7, 99), None)


@pytest.mark.hazard("holders-fade")
@pytest.mark.parametrize(
    ("digests", "reason"),
    [
        ({A: ALL, B: ALL, C: ALL}, None),
        ({B: ALL, C: ALL}, None),  # its disk is lost already
        ({A: ALL, B: ALL, C: SOME}, "c differ"),
        ({A: ALL, B: SOME, C: SOME}, "b, c differ"),  # only this node has some notes
        ({B: ALL, C: SOME}, "c differ"),
        ({A: ALL, B: ALL, C: FEWER_DELETIONS}, "c differ"),
        ({A: FEWER_DELETIONS, B: ALL, C: OLDER_NODE}, None),  # which does not say what deletions it has
        ({A: ALL, B: ALL}, "only 1 of 2"),
        ({A: ALL}, "only 0 of 2"),
        ({}, "only 0 of 2"),
    ],
)
def test_node_stays_while_it_may_hold_the_only_copy_of_a_note(
    digests: dict[Incarnation, NotesDigests], reason: str | None
) -> None:
    """A's disk is replaced in May, B's in July: each time all others hold all notes."""
    refusal = notes_refusal(A, digests, [B, C], ack_quorum=2)
    assert refusal is None if reason is None else reason in (refusal or "")


def test_only_node_and_fewer_nodes_than_the_quorum() -> None:
    assert notes_refusal(A, {A: ALL}, [], ack_quorum=2) is None
    assert notes_refusal(A, {A: ALL, B: ALL}, [B], ack_quorum=2) is None
    no_owner_yet = notes_refusal(A, {A: ALL, B: ALL}, [B, C], ack_quorum=0)
    assert no_owner_yet == "only 1 of 2 other storage nodes hold the notes of all records"


@pytest.mark.hazard("holders-fade")
@pytest.mark.parametrize(
    ("limbo", "ack_quorum", "allowed"),
    [
        ((), 2, True),
        ((A,), 2, True),  # the disk that is replaced
        ((B,), 2, False),
        ((B,), 3, True),  # a restore may lack two of five
        ((B, C), 3, False),
        ((B,), 1, False),
        ((B, C), 5, False),  # more than half must be there
        ((B,), 0, False),  # no owner has told its quorum
    ],
)
def test_node_stays_while_a_restore_would_have_too_few_without_it(
    limbo: Sequence[Incarnation], ack_quorum: int, *, allowed: bool
) -> None:
    """A node in limbo counts as missing in a restore, and the replaced one is away until the new one has joined."""
    others = [B, C, D, Incarnation("e")]
    digests = dict.fromkeys((A, *others), ALL)
    refusal = notes_refusal(A, digests, others, ack_quorum=ack_quorum, limbo=limbo)
    assert refusal is None if allowed else "in limbo" in (refusal or "")


def test_draining_node_stays_until_no_ledger_with_entries_names_it() -> None:
    """An empty closed ledger is never written to or read. No list names those of takeovers, so nobody would move them,
    and they wait for a floor, which an idle topic does not raise."""
    for record in (closed(), closed(members=(B, C, D), joining=A), closed(state=LedgerState.OPEN, end=NO_ENTRY)):
        assert keeps_draining(record, A, listed=False)
        assert not keeps_draining(record, Incarnation("e"), listed=True)
    assert not keeps_draining(closed(end=NO_ENTRY), A, listed=False)
    assert keeps_draining(closed(end=NO_ENTRY), A, listed=True), "repair moves it"


def draining(*read_only: Incarnation) -> StorageNodes:
    return StorageNodes(NodeView(node, draining=node == A, read_only=node in read_only) for node in (A, B, C, D))


@pytest.mark.parametrize(
    ("record", "nodes", "reason"),
    [
        (closed(), draining(), "its copy is moved"),
        (closed(), draining(D), "no other storage node can take its copy"),
        (closed(frozen=True), draining(), "frozen"),
        (closed(state=LedgerState.OPEN, end=NO_ENTRY), draining(), "asked to end it"),
        (closed(state=LedgerState.OPEN, end=NO_ENTRY), draining(D), "take the place of this one"),
    ],
)
def test_removal_says_why_a_ledger_keeps_the_node(record: LedgerMetadata, nodes: StorageNodes, reason: str) -> None:
    assert reason in drain_reason(record, assess(record, nodes, (), avoid={}))


def test_removal_says_that_no_list_names_a_ledger() -> None:
    assert "no list that can be read names it" in drain_reason(closed(), None)
    assert "its owner created it" in drain_reason(closed(state=LedgerState.OPEN), None)
