"""What JOIN decides, rule by rule, and what it leaves to an operator."""

from dataclasses import replace

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.ledger_page import PageLink
from oncelog.core.formats.topic_record import CursorLink, CursorRecord, GivenUpBehind, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.result import (
    CopiedRecords,
    NotedName,
    NotedRecords,
    ReviewReason,
    Side,
    WantedLength,
)
from oncelog.core.rebuild.sources import HeldLedger
from tests.core.rebuild.join_world import (
    ABC,
    ACKS,
    CLOSED,
    DEDUP,
    LOG,
    NAME,
    OPEN,
    OTHER,
    TOPIC,
    A,
    B,
    C,
    D,
    E,
    Holding,
    at,
    everywhere,
    held,
    joined,
    listed,
    reasons,
    record,
    topic_of,
)


def test_rebuilt_topic_has_no_owner_and_begins_with_the_epoch_of_the_era() -> None:
    """So every owner of before is refused, and ids are new."""
    rebuilt = joined(everywhere(held(1, 4), held(2, 3, former=at(1, 4), base_index=4)))
    record_of_topic = topic_of(rebuilt).record
    assert (record_of_topic.owner, record_of_topic.owner_epoch) == (None, 2 << 32)
    assert record_of_topic.ledgers == (LedgerLink(LedgerId(1), 0), LedgerLink(LedgerId(2), 4))
    assert topic_of(rebuilt).cursor == CursorRecord(OwnerEpoch(2 << 32))
    assert (rebuilt.names, rebuilt.next_id, rebuilt.reviews) == ({NAME: TOPIC}, 2 << 40, ())
    first, last = record(rebuilt, 1), record(rebuilt, 2)
    assert (first.state, first.end, first.length, first.verified) == (CLOSED, 4, 50, False)
    assert (last.state, last.members) == (OPEN, ABC)


@pytest.mark.hazard("a-tail-that-was-given-up")
def test_ledger_ends_where_the_head_of_the_next_one_says() -> None:
    """One node has entries that were never acknowledged; they were stored again in the next ledger."""
    holding = {A: (held(1, 4), held(2, 3, former=at(1, 2))), B: (held(1, 2), held(2, 3, former=at(1, 2)))}
    rebuilt = joined(holding)
    assert (record(rebuilt, 1).end, record(rebuilt, 1).length, record(rebuilt, 1).state) == (2, 30, CLOSED)
    assert rebuilt.reviews == ()


@pytest.mark.hazard("former-ignored")
def test_ledger_between_a_ledger_and_its_former_one_is_left_out() -> None:
    """It has a tail of one copy, or nothing but a head: both are not of the log."""
    last = held(6, 2, former=at(1, 4), base_index=4)
    holding = {A: (held(1, 4), held(3, 2, former=at(1, 4)), last), B: (held(1, 4), held(5, 0, former=at(1, 4)), last)}
    rebuilt = joined(holding)
    assert listed(rebuilt) == [1, 6]
    assert topic_of(rebuilt).passed_over == (5, 3)


@pytest.mark.hazard("floor-ignored")
@pytest.mark.parametrize("source", ["node", "head", "copy"])
def test_trimmed_ledger_does_not_return(source: str) -> None:
    """A node was away while the others erased it."""
    newest = held(3, 1, former=at(2, 4), floor=2 if source == "head" else 0)
    copied = CopiedRecords({TOPIC: TopicRecord(TOPIC, NAME, deleted_below=LedgerId(2 if source == "copy" else 0))})
    snapshot = held(4, 3, purpose=DEDUP)
    second = held(2, 4, former=at(1, 4))
    holding = {A: (held(1, 4), second, newest, snapshot), B: (second, newest, snapshot)}
    rebuilt = joined(holding, floors={B: 2} if source == "node" else {}, copied=copied)
    assert (listed(rebuilt), topic_of(rebuilt).record.deleted_below, rebuilt.reviews) == ([2, 3], 2, ())


@pytest.mark.hazard("limbo-counts-as-asked")
def test_node_in_limbo_counts_as_missing() -> None:
    """With an absent one it makes two: a ledger of these two alone may be in no inventory."""
    holding = {A: held(1, 4), B: held(1, 4, state=CopyState.LIMBO), C: held(1, 4)}
    assert topic_of(joined(holding)).given_up is None
    assert topic_of(joined(holding, limbo=[B])).given_up is None
    assert topic_of(joined(holding, limbo=[B], also_missing=[B])).given_up is None, (
        "a restore counts it as missing, too"
    )
    assert topic_of(joined(holding, absent=[C])).given_up is None
    beyond = joined(holding, absent=[C], limbo=[B])
    assert (topic_of(beyond).given_up, beyond.beyond_bound) == (GivenUpBehind(LedgerId(1), LedgerId(0)), True)


def test_lowest_ack_quorum_that_anything_tells_counts() -> None:
    """The cluster's record may be lost, or older than a ledger."""
    once = replace(held(2, 1, former=at(1, 4)), head=LedgerHead(NAME, ABC, 1, 1, A, LedgerId(0), at(1, 4)))
    one = everywhere(held(1, 4))
    assert not joined(one, absent=[D], ack_quorum=0).beyond_bound
    assert joined(one, absent=[D, E], ack_quorum=0).beyond_bound
    assert joined(everywhere(held(1, 4), once), absent=[D]).beyond_bound
    assert joined({}, absent=[D], ack_quorum=0).beyond_bound
    assert not joined({}, ack_quorum=0).beyond_bound


@pytest.mark.hazard("limbo-counts-as-asked")
def test_copy_in_limbo_is_the_last_to_become_a_member_and_says_no_end() -> None:
    limbo = held(1, 4, state=CopyState.LIMBO)
    last = held(2, 1, former=at(1, 4), members=(A, B, D))
    holding: Holding = {A: (limbo, last), B: (held(1, 2), last), C: (held(1, 4), last), D: (held(1, 4), last)}
    rebuilt = joined(holding, limbo=[A])
    assert record(rebuilt, 1).members == (C, D, B)
    silent = joined({A: held(1, 1, state=CopyState.LIMBO), B: held(1, 1)}, absent=[C], limbo=[A])
    assert reasons(silent) == [ReviewReason.TOO_FEW_MEMBERS]


@pytest.mark.hazard("limbo-counts-as-asked")
def test_node_in_limbo_that_shows_a_ledger_counts_once() -> None:
    """It is missing to the restore, and what it shows is unsure: that is one node, which is within the bound."""
    partial = held(1, 2, state=CopyState.LIMBO)
    holding: Holding = {A: held(1, 4), B: partial, C: held(1, -1, state=CopyState.ERASED)}
    rebuilt = joined(holding, limbo=[B], also_missing=[B])
    assert (record(rebuilt, 1).state, record(rebuilt, 1).end, rebuilt.reviews) == (CLOSED, 4, ())
    assert reasons(joined(holding, limbo=[B], absent=[D], also_missing=[B])) == [ReviewReason.NO_END]


@pytest.mark.hazard("refilled-member")
@pytest.mark.parametrize("trace", ["refilled", "erased", "another node"])
def test_last_ledger_that_was_repaired_is_closed(trace: str) -> None:
    """A recovery would take what a half filled copy lacks for the end of the ledger."""
    partial = held(1, 2, erased_before=trace == "refilled")
    holding: dict[Incarnation, HeldLedger] = {A: held(1, 4), B: partial}
    if trace == "erased":
        holding[C] = held(1, -1, state=CopyState.ERASED)
    if trace == "another node":
        holding[D] = held(1, 4)
    rebuilt = joined(holding)
    closed = record(rebuilt, 1)
    assert (closed.state, closed.end, closed.length, rebuilt.reviews) == (CLOSED, 4, 50, ())
    assert (closed.members[0], len(closed.members)) == (A, 3)
    assert reasons(joined({**holding, B: replace(partial, state=CopyState.DAMAGED)}, absent=[E])) == [
        ReviewReason.NO_END
    ]


@pytest.mark.hazard("refilled-member")
def test_last_ledger_of_which_a_member_is_emptied_is_closed() -> None:
    """Repair has replaced the member, or it never had an acknowledged entry: nobody waits for it. Only what it had when
    a restore gave it up beyond the bound is nowhere else."""
    holding: Holding = {A: held(1, 4, members=(A, B, D))}
    rebuilt = joined(holding, absent=[B], emptied=[D])
    closed = record(rebuilt, 1)
    assert (closed.state, closed.end, closed.members[0], rebuilt.reviews) == (CLOSED, 4, A, ())
    assert reasons(joined(holding, absent=[B, C], emptied=[D])) == [ReviewReason.NO_END]
    assert reasons(joined(holding, absent=[B])) == [ReviewReason.TOO_FEW_MEMBERS]
    assert reasons(joined(holding, absent=[B], emptied=[D], owed_below=2)) == [ReviewReason.TOO_FEW_MEMBERS]


@pytest.mark.hazard("refilled-member")
def test_members_that_an_earlier_restore_gave_up_are_not_waited_for() -> None:
    """Their topic has not yet said so. To accept that it waits for them would be to wait for ever."""
    holding: Holding = {A: held(1, 4, members=(A, D, E))}
    rebuilt = joined(holding, emptied=[D, E], owed_below=2)
    last = record(rebuilt, 1)
    assert (last.state, last.given_up, last.given_up_by) == (LedgerState.IN_RECOVERY, (D, E), "an earlier restore")
    assert rebuilt.reviews == ()


def test_closed_ledger_gets_its_holders_and_as_many_members_as_before() -> None:
    """The fullest first; a member that may return before a node that has nothing, and that before one that erased."""
    last = held(2, 1, former=at(1, 4))
    holding = {A: (held(1, 2), last), B: (held(1, -1, state=CopyState.ERASED), last), D: (held(1, 4),)}
    assert record(joined(holding, absent=[C]), 1).members == (D, A, C)
    assert record(joined(holding), 1).members == (D, A, C)
    assert record(joined({A: (held(1, 4), last)}, absent=[B, C], by="ops"), 1).members == ABC


def test_length_that_no_inventory_tells_is_wanted() -> None:
    """Every holder has a tail behind the end, so the header of the last entry must be read."""
    rebuilt = joined({A: (held(1, 4), held(2, 1, former=at(1, 3)))})
    assert topic_of(rebuilt).wanted == (WantedLength(LedgerId(1), EntryId(3), (A,)),)


def test_ledger_whose_last_entry_is_lost_has_the_length_of_what_is_left() -> None:
    """Nobody could tell its length, so no restore of the cluster would ever end."""
    left = held(1, 2)
    rebuilt = joined({A: (left, held(2, 1, former=at(1, 4)))})
    assert topic_of(rebuilt).wanted == ()
    assert record(rebuilt, 1).length == left.last_length > 0


def test_entries_without_a_holder_are_counted() -> None:
    """They are proved lost later, or come back with a node."""
    last = held(2, 1, former=at(1, 9))
    holding = {A: (held(1, 2), last), B: (held(1, 9, first=6), last)}
    assert topic_of(joined(holding)).without_holder == 3


def test_ledger_whose_entry_0_nobody_has_was_never_acknowledged() -> None:
    """Unless as many nodes as an acknowledgement needs show nothing."""
    holding = everywhere(held(1, 4)) | {A: (held(1, 4), held(5, 2, first=1))}
    assert (listed(joined(holding)), joined(holding).reviews) == ([1], ())
    assert reasons(joined(holding, absent=[D, E])) == [ReviewReason.NO_HEAD]


# --- names and deletions ----------------------------------------------------------------------------------------------


def test_deleted_topic_gets_no_records_and_loses_its_name() -> None:
    """Its ledgers are on the storage nodes still; the name belongs to the topic that was created after it."""
    noted = NotedRecords({NAME: NotedName(TOPIC)}, frozenset({TOPIC}))
    holding = everywhere(held(1, 4), held(2, 4, topic=OTHER))
    copied = CopiedRecords({TOPIC: TopicRecord(TOPIC, NAME)})
    rebuilt = joined(holding, noted=noted, copied=copied)
    assert (list(rebuilt.topics), rebuilt.names, rebuilt.deleted, rebuilt.reviews) == ([OTHER], {NAME: OTHER}, 1, ())


def test_two_topics_of_one_name_are_reviewed_and_a_note_decides() -> None:
    holding = everywhere(held(1, 4), held(2, 4, topic=OTHER))
    newest, noted = joined(holding), joined(holding, noted=NotedRecords({NAME: NotedName(TOPIC)}))
    assert (newest.names, noted.names) == ({NAME: OTHER}, {NAME: TOPIC})
    assert [review.topic_id for review in (*newest.reviews, *noted.reviews)] == [TOPIC, OTHER]
    assert reasons(noted) == [ReviewReason.NAME_TAKEN]


def test_noted_topic_without_ledgers_gets_an_empty_record() -> None:
    """A partitioned topic never has any. Its name is written as it was noted."""
    names = {NAME: NotedName(TOPIC), "public/default/wide": NotedName(OTHER, partitioned=True)}
    rebuilt = joined({}, noted=NotedRecords(names))
    assert {each: topic.record.name for each, topic in rebuilt.topics.items()} == {
        TOPIC: NAME,
        OTHER: "public/default/wide",
    }
    assert rebuilt.names == {NAME: TOPIC}
    assert topic_of(joined({}, noted=NotedRecords({NAME: NotedName(TOPIC)}))).cursor is None


# --- what an operator must decide -------------------------------------------------------------------------------------


def test_gap_in_a_chain_shows_both_sides() -> None:
    """Nothing says that the missing ledger was trimmed."""
    rebuilt = joined(everywhere(held(1, 9), held(3, 4, former=at(2, 7)), held(4, 1, former=at(3, 4))))
    (review,) = rebuilt.reviews
    assert (review.reason, review.purpose, review.name) == (ReviewReason.GAP, LOG, NAME)
    assert (review.before, review.behind) == (
        Side(LedgerId(1), LedgerId(1), 1, 100),
        Side(LedgerId(3), LedgerId(4), 2, 70),
    )
    assert "ledger 2 is missing in front of ledger 3" in review.message
    assert (listed(rebuilt), topic_of(rebuilt).given_up) == ([1, 3, 4], GivenUpBehind(LedgerId(4), LedgerId(0)))


def test_each_ledger_is_looked_at_a_few_times_however_many_gaps_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 50,000 ledgers has thousands of gaps if most storage nodes are lost."""
    looks = [0]
    size_bytes = Evidence.size_bytes

    def counted(evidence: Evidence, ledger_id: LedgerId) -> int:
        looks[0] += 1
        return size_bytes(evidence, ledger_id)

    monkeypatch.setattr(Evidence, "size_bytes", counted)
    ledgers = tuple(held(each, 4, former=at(each - 1, 4)) for each in range(2, 402) if each % 10)
    rebuilt = joined({A: ledgers}, absent=[B, C], by="ops")
    assert len(rebuilt.reviews) == 41, "the first one is missing, too"
    assert rebuilt.reviews[0].before == Side(LedgerId(2), LedgerId(399), 359, 359 * 50)
    assert looks[0] < 4 * len(ledgers)


def test_missing_front_is_no_gap_if_it_was_deleted() -> None:
    """The node that erased it says so, also without a floor."""
    gone = HeldLedger(LedgerId(2), None, CopyState.ERASED, deleted=True, erased_before=True)
    last = held(3, 4, former=at(2, 7), base_index=9)
    rebuilt = joined({A: (gone, last), B: (last, held(4, 2, purpose=DEDUP))})
    assert (listed(rebuilt), rebuilt.reviews) == ([3], ())


@pytest.mark.hazard("left-out-ledger-returns")
def test_ledger_that_an_earlier_restore_left_out_does_not_return() -> None:
    """Ledger 6 was at D only, which the restore before did not ask: it reopened ledger 4, and entries 3 and 4 were
    acknowledged then."""
    epoch = OwnerEpoch(Era(2, "f" * 32).first_epoch)
    listing = TopicRecord(TOPIC, NAME, owner_epoch=epoch, ledgers=(LedgerLink(LedgerId(4), 0),), acks=(LedgerId(5),))
    cursor = CursorRecord(epoch, (CursorLink(LedgerId(3), None),))
    late = (
        held(6, 1, former=at(4, 2), base_index=2), held(7, 1, purpose=ACKS, former=at(5, 0)), held(8, 1, purpose=DEDUP)
    )  # fmt: skip
    world = everywhere(held(3, 1, purpose=DEDUP), held(4, 4), held(5, 3, purpose=ACKS)) | {D: late}
    copied = CopiedRecords({TOPIC: listing}, {TOPIC: cursor})
    rebuilt = joined(world, copied=copied)
    topic = topic_of(rebuilt)
    assert (listed(rebuilt), topic.record.acks, rebuilt.reviews) == ([4], (5,), ())
    assert topic.cursor is not None
    assert [link.ledger_id for link in topic.cursor.ledgers] == [3]
    assert record(rebuilt, 4).state is OPEN
    assert sorted(topic.passed_over) == [6, 7, 8]
    # A list of the era of these ledgers may be older than they are.
    first = CopiedRecords({TOPIC: replace(listing, owner_epoch=OwnerEpoch(1))}, {TOPIC: CursorRecord(OwnerEpoch(1))})
    assert listed(joined(world, copied=first)) == [4, 6]


@pytest.mark.hazard("deletion-in-a-former-era")
@pytest.mark.parametrize("knows", [True, False])
def test_node_that_knows_nothing_of_the_newest_era_proves_no_deletion(knows: bool) -> None:
    """The ZooKeeper of era 1 was told of a trim after the restore that listed ledger 2. Node C has erased its copy by
    it, and has a head of a ledger that was opened there, too."""
    two = Era(2, "f" * 32)
    names = TopicRecord(
        TOPIC,
        NAME,
        owner_epoch=OwnerEpoch(two.first_epoch),
        ledgers=(LedgerLink(LedgerId(2), 0), LedgerLink(LedgerId(4), 5)),
    )
    here = held(2, 4), held(4, 2, former=at(2, 4), base_index=5)
    gone = HeldLedger(LedgerId(2), None, CopyState.ERASED, deleted=True, erased_before=True)
    zombie = held(6, 1, former=at(4, 0), base_index=6, floor=4)
    rebuilt = joined(
        {A: here, B: here, C: (gone, zombie)}, floors={C: 4}, copied=CopiedRecords({TOPIC: names}),
        committed={A: two, B: two} | ({C: two} if knows else {}),
    )  # fmt: skip
    assert listed(rebuilt) == ([4] if knows else [2, 4])


@pytest.mark.hazard("left-out-ledger-returns")
def test_ledger_in_a_gap_returns_and_one_in_a_lacking_page_was_not_left_out() -> None:
    epoch = OwnerEpoch(Era(2, "f" * 32).first_epoch)
    world = everywhere(held(1, 4), held(2, 4, former=at(1, 4), base_index=4), held(3, 4, former=at(2, 4), base_index=8))
    listing = TopicRecord(
        TOPIC, NAME, owner_epoch=epoch, ledgers=(LedgerLink(LedgerId(1), 0), LedgerLink(LedgerId(3), 8))
    )
    assert listed(joined(world, copied=CopiedRecords({TOPIC: listing}))) == [1, 2, 3]
    paged = replace(listing, ledgers=(), pages=(PageLink(LedgerId(1), LedgerId(1), 0, LedgerId(3), 3, 12, 0),))
    assert listed(joined(world, copied=CopiedRecords({TOPIC: paged}))) == [1, 2, 3]


def test_ledger_without_a_head_needs_a_copy() -> None:
    """Its first entry is lost: neither its place nor its end is known."""
    old, last = held(1, 4, head=False), held(2, 4, former=at(1, 4))
    rebuilt = joined(everywhere(old, last))
    assert (reasons(rebuilt), listed(rebuilt)) == ([ReviewReason.NO_HEAD], [2])
    assert rebuilt.reviews[0].before == Side(LedgerId(1), LedgerId(1), 1, 50)
    copied = CopiedRecords(
        {TOPIC: TopicRecord(TOPIC, NAME, ledgers=(LedgerLink(LedgerId(1), 0),))},
        ledgers={LedgerId(1): LedgerMetadata(LedgerId(1), TOPIC, ABC, 2, CLOSED, EntryId(4), 50)},
    )
    rebuilt = joined(everywhere(old, last), copied=copied)
    assert (rebuilt.reviews, listed(rebuilt), record(rebuilt, 1).end) == ((), [1, 2], 4)


@pytest.mark.parametrize("state", list(LedgerState))
def test_what_was_given_up_of_a_closed_ledger_stays_so(state: LedgerState) -> None:
    """A takeover passes over what is lost. A recovery may have found what was given up of an open ledger."""
    known = LedgerMetadata(
        LedgerId(1), TOPIC, ABC, 2, state, EntryId(4), 50, lost=(EntryRange(EntryId(1), EntryId(1)),),
        given_up_by="ops", given_up=(C,), further={"x_future": 1},
    )  # fmt: skip
    copied = CopiedRecords(
        {TOPIC: TopicRecord(TOPIC, NAME, ledgers=(LedgerLink(LedgerId(1), 0),))}, ledgers={LedgerId(1): known}
    )
    rebuilt = record(joined(everywhere(held(1, 4), held(2, 1, former=at(1, 4))), copied=copied), 1)
    assert (rebuilt.lost, rebuilt.further) == (known.lost, known.further)
    assert (rebuilt.given_up_by, rebuilt.given_up) == (("ops", (C,)) if state is CLOSED else ("", ()))


def test_ends_that_differ_are_reviewed() -> None:
    """By the copy, acknowledged entries follow the end that the next head names."""
    copied = CopiedRecords(
        {TOPIC: TopicRecord(TOPIC, NAME, ledgers=(LedgerLink(LedgerId(1), 0),))},
        ledgers={LedgerId(1): LedgerMetadata(LedgerId(1), TOPIC, ABC, 2, CLOSED, EntryId(4), 50)},
    )
    rebuilt = joined(everywhere(held(1, 4), held(2, 1, former=at(1, 2))), copied=copied)
    assert (reasons(rebuilt), record(rebuilt, 1).end) == ([ReviewReason.ENDS_DIFFER], 4)
    passed = joined(everywhere(held(1, 4), held(2, 1)), copied=copied)
    assert (reasons(passed), listed(passed)) == ([ReviewReason.ENDS_DIFFER], [2])


def test_trimmed_log_without_a_snapshot_is_reviewed() -> None:
    """Marks and subscriptions of before are in snapshots only."""
    holding = everywhere(held(3, 4, former=at(2, 7), floor=3, base_index=9))
    assert reasons(joined(holding)) == [ReviewReason.NO_SNAPSHOT]
    assert topic_of(joined(holding)).given_up == GivenUpBehind(LedgerId(3), LedgerId(0))
    with_snapshot = {node: (*ledgers, held(4, 2, purpose=DEDUP)) for node, ledgers in holding.items()}
    assert joined(with_snapshot).reviews == ()


def test_last_ledger_without_enough_members_waits_or_is_given_up() -> None:
    """Who names absent nodes gives up what only they have: the recovery goes on without them."""
    alone = joined({A: held(1, 4)}, absent=[B, C])
    assert (reasons(alone), record(alone, 1).state) == ([ReviewReason.TOO_FEW_MEMBERS], OPEN)
    given_up = joined({A: held(1, 4)}, absent=[B, C], by="ops")
    assert given_up.reviews == ()
    ended = record(given_up, 1)
    assert (ended.state, ended.given_up, ended.given_up_by) == (LedgerState.IN_RECOVERY, (B, C), "ops")
    assert topic_of(given_up).given_up == GivenUpBehind(LedgerId(1), LedgerId(0), "ops")


def test_last_ledger_whose_recovery_could_not_write_back_is_given_up_by_name_only() -> None:
    """Two members and an ack quorum of two: one member knows all that was acknowledged, but the recovery waits for the
    other one, which never returns. A node that may come back is waited for."""
    one = held(1, 4, members=(A, B))
    waits = joined({A: one}, absent=[B])
    assert (record(waits, 1).state, waits.reviews) == (OPEN, ())
    ended = record(joined({A: one}, absent=[B], by="ops"), 1)
    assert (ended.given_up, ended.given_up_by) == ((B,), "ops")


def test_silent_node_that_was_not_named_is_not_given_up() -> None:
    """The operator has named B. C starts yet, and may have entries that only B and C have acknowledged."""
    waits = joined({A: held(1, 4)}, absent=[B, C], by="ops", given_up=[B])
    assert reasons(waits) == [ReviewReason.TOO_FEW_MEMBERS]
    assert (record(waits, 1).state, record(waits, 1).given_up) == (LedgerState.IN_RECOVERY, (B,))
    assert topic_of(waits).given_up is not None, "what only B had is lost"
    repaired = joined({A: held(1, 4), D: held(1, 2)}, absent=[B, C], by="ops", given_up=[B])
    assert reasons(repaired) == [ReviewReason.NO_END]
    assert joined({A: held(1, 4), D: held(1, 2)}, absent=[B, C], by="ops").reviews == ()


@pytest.mark.hazard("restore-beyond-the-bound")
@pytest.mark.parametrize(
    ("log", "acks", "owed"),
    [
        ((held(3, 4),), (), True),
        ((held(3, 4),), (held(4, 1, purpose=ACKS),), True),
        ((held(3, 4), held(50, 0, former=at(3, 4))), (held(51, 1, purpose=ACKS),), True),
        ((held(3, 4), held(50, 1, former=at(3, 4))), (held(51, 0, purpose=ACKS),), True),
        ((held(3, 4), held(50, 1, former=at(3, 4))), (), True),
        ((held(3, 4), held(50, 1, former=at(3, 4))), (held(51, 1, purpose=ACKS),), False),
        ((held(50, 1),), (), False),
    ],
    ids=["no-owner", "acks-of-before", "no-log", "no-acks", "first-acks", "both", "created-later"],
)
def test_topic_that_has_not_said_what_an_earlier_restore_gave_up_still_owes_it(
    log: tuple[HeldLedger, ...], acks: tuple[HeldLedger, ...], owed: bool
) -> None:
    """ZooKeeper is lost again; all nodes of the era, which begins at 50, answer. In a first ledger of an era, an entry
    behind the head says it."""
    rebuilt = topic_of(joined(everywhere(*log, *acks), owed_below=50))
    last = (log[-1].ledger_id, acks[-1].ledger_id if acks else 0)
    assert rebuilt.given_up == (GivenUpBehind(last[0], LedgerId(last[1])) if owed else None)
    assert topic_of(joined(everywhere(*log, *acks))).given_up is None
