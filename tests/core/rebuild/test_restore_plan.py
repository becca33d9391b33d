"""A restore goes on only when enough storage nodes are fenced, and one of two restores gets through."""

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import (
    ClaimEra,
    ClusterSeen,
    Collect,
    CommitEra,
    EraCommitted,
    JoinRecords,
    RaiseEras,
    RestoreEffect,
    RestoreEnded,
    RestoreRequest,
    RestoreStep,
    Survey,
    WriteRecords,
)
from oncelog.core.rebuild.restore_plan import FINISHED_ELSEWHERE, Restore
from oncelog.core.records.status import WriteStatus
from tests.core.rebuild.plan_world import (
    CLUSTER,
    R1,
    R2,
    TOPIC,
    A,
    B,
    C,
    D,
    Node,
    World,
    committed,
    ended,
    go_on,
    run,
    serving,
    world_of,
)

DAMAGED = "If records are damaged, all are restored by --take-over --ends-era"


def test_emptied_tree_is_restored_in_the_next_era() -> None:
    """All nodes have stored the era before any of them is asked what it has."""
    world = world_of(A, B, C)
    assert ended(world) == ""
    assert committed(world)
    assert world.raised_at_collect == [dict.fromkeys((A, B, C), Era(2, R1))]
    assert world.joined == [JoinRecords((), False)]


@pytest.mark.hazard("revoked-right-returns")
def test_restore_takes_an_era_above_that_of_each_copy() -> None:
    """The disks of all nodes are older than the copy. What is noted in the new era must be newer than the copy."""
    world = world_of(A, B, C)
    world.copied_era = 7
    assert ended(world) == ""
    assert committed(world)
    assert world.raised_at_collect[-1] == dict.fromkeys((A, B, C), Era(8, R1))
    assert len(world.joined) == 1, "nothing is written in an era that is not above it"


@pytest.mark.hazard("restore-at-too-few-nodes")
@pytest.mark.parametrize(("quorum", "silent"), [(1, 1), (2, 2), (3, 2)])
def test_more_missing_nodes_than_the_bound_refuse_the_restore(quorum: int, silent: int) -> None:
    """With Qa = 2 one of three may be missing. Of two of three the owner of the lower era could still get its answers,
    and with Qa = 3 two are within the bound, but one is not more than half."""
    world = world_of(A, B, C)
    world.ack_quorum = quorum
    for name in (C, B)[:silent]:
        world.nodes[name].silent = True
    refusal = ended(world)
    assert C in refusal
    assert f"at least {3 if quorum == 1 else 2} are needed" in refusal
    assert "--absent NODE" in refusal
    assert world.tree is None, "nothing is claimed by a restore that cannot go on"


def test_one_missing_node_is_within_the_bound() -> None:
    """Qa = 2: every acknowledged entry is on one of the others."""
    world = world_of(A, B, C)
    world.nodes[B].silent = True
    assert ended(world) == ""
    assert world.joined == [JoinRecords((B,), False)]


@pytest.mark.hazard("restore-at-too-few-nodes")
@pytest.mark.parametrize("limbo", [False, True])
def test_node_that_dies_during_raise_counts_as_missing(limbo: bool) -> None:
    """It answered the survey; what counts is who has stored the era. limbo: the other one that is missing stores it,
    but its directory has lost records. Nothing is read from too few nodes."""
    world = world_of(A, B, C)
    world.nodes[A].silent, world.nodes[A].limbo = not limbo, limbo
    restore = Restore(RestoreRequest(R1))
    effect = run(world, restore, until=lambda each: isinstance(each, RaiseEras))
    world.nodes[B].silent = True
    assert "2 of 3" not in go_on(world, restore, effect)
    assert restore.step is RestoreStep.REFUSED
    assert world.raised_at_collect == []
    assert not committed(world)
    world.nodes[B].silent = False
    assert ended(world, restore_id=R2) == ""
    assert world.nodes[B].era == Era(2, R1), "the next request resumes it under its own id"


@pytest.mark.hazard("two-restores")
@pytest.mark.parametrize("first", [A, B, C])
def test_of_two_restores_on_two_ensembles_one_gets_through_and_then_the_other(first: Incarnation) -> None:
    """Both take era 2. Each node stores one of them. The loser takes era 3 on all nodes, so the first one's commit
    stands in a tree that no node serves."""
    nodes = {name: Node(knows=(A, B, C)) for name in (A, B, C)}
    one, other = World(nodes), World(nodes)
    nodes[first].raised_to(Era(2, R1))
    restores = Restore(RestoreRequest(R1)), Restore(RestoreRequest(R2))
    raising = run(one, restores[0], until=lambda each: isinstance(each, RaiseEras))
    assert isinstance(raising, RaiseEras)
    assert raising.era.number == 3 or raising.era == Era(2, R1)
    assert go_on(other, restores[1], restores[1].begin()[0]) == ""
    # The other one has raised all of them by now, above the ballot of the first.
    assert {node.era.restore_id for node in nodes.values()} == {R2}
    assert go_on(one, restores[0], raising) == ""
    eras = {node.era for node in nodes.values()}
    assert eras == {restores[0].era}
    assert restores[0].era > restores[1].era


@pytest.mark.hazard("two-restores")
def test_restores_of_one_era_that_interleave_at_each_node_never_both_collect() -> None:
    """R1 gets A first, R2 gets C first: each meets the other's ballot and takes a higher era."""
    nodes = {name: Node(knows=(A, B, C)) for name in (A, B, C)}
    one, other = World(nodes), World(nodes)
    first, second = Restore(RestoreRequest(R1)), Restore(RestoreRequest(R2))
    raising = run(one, first, until=lambda each: isinstance(each, RaiseEras))
    rival = run(other, second, until=lambda each: isinstance(each, RaiseEras))
    assert isinstance(raising, RaiseEras)
    assert isinstance(rival, RaiseEras)
    assert (raising.era, rival.era) == (Era(2, R1), Era(2, R2))
    nodes[A].raised_to(raising.era)
    nodes[C].raised_to(rival.era)
    assert go_on(one, first, raising) == ""
    assert first.era == Era(3, R1)
    assert go_on(other, second, rival) == ""
    assert second.era == Era(4, R2)
    assert all({*eras.values()} == {eras[A]} for world in (one, other) for eras in world.raised_at_collect)


@pytest.mark.hazard("two-restores")
def test_absent_refuses_a_node_that_answers() -> None:
    """Otherwise each of two operators could take its own half."""
    world = world_of(A, B, C)
    assert f"{C} answers" in ended(world, absent=(C,))
    assert world.tree is None


@pytest.mark.hazard("unnoted-member")
@pytest.mark.parametrize("silent", [True, False])
def test_node_that_only_a_note_names_is_raised_and_counted(silent: bool) -> None:
    """D joined last; only C knows it. A is missing. D counts: when it is silent, two are missing, and Qa is 2."""
    world = world_of(A, B, C)
    world.nodes[C].knows = (A, B, C, D)
    world.nodes[D] = Node(knows=(A, B, C, D), silent=silent)
    world.nodes[A].silent = True
    refusal = ended(world)
    if silent:
        assert D in refusal
        assert not committed(world)
    else:
        assert refusal == ""
        assert world.raised_at_collect[-1][D] == Era(2, R1)


@pytest.mark.hazard("unnoted-member")
def test_note_that_is_read_only_behind_the_era_is_followed() -> None:
    """The survey knew three nodes. Behind the record of the era C has the note of D, which had not joined before."""
    world = world_of(A, B, C)
    world.nodes[D] = Node(knows=(A, B, C, D))
    restore = Restore(RestoreRequest(R1))
    effect = run(world, restore, until=lambda each: isinstance(each, Collect))
    world.nodes[C].knows = (A, B, C, D)
    assert go_on(world, restore, effect) == ""
    assert set(world.raised_at_collect[-1]) == {A, B, C, D}


@pytest.mark.hazard("older-disk-is-missing")
def test_node_in_limbo_counts_as_missing() -> None:
    """Its disk went back: it is asked and its copies are used, but it proves nothing. With one more away it is too
    much."""
    world = world_of(A, B, C)
    world.nodes[A].limbo = True
    assert ended(world) == ""
    assert world.joined == [JoinRecords((A,), False)]
    world = world_of(A, B, C)
    world.nodes[A].limbo, world.nodes[B].silent = True, True
    assert A in ended(world)
    assert world.tree is None


def test_more_absent_nodes_than_the_bound_give_up_and_close_the_rights() -> None:
    """An entry that only the absent ones had may belong to any topic."""
    world = world_of(A, B, C)
    world.nodes[B].silent = world.nodes[C].silent = True
    restore = Restore(RestoreRequest(R1, absent=(B, C)))
    effect = run(world, restore, until=lambda each: isinstance(each, CommitEra))
    assert world.joined == [JoinRecords((B, C), True)]
    assert isinstance(effect, CommitEra)
    assert effect.rights_closed


def test_directory_that_lost_records_may_be_given_up_although_it_answers() -> None:
    """Otherwise two of them would block every restore for ever."""
    world = world_of(A, B, C)
    world.nodes[A].limbo = world.nodes[B].limbo = True
    assert "--absent NODE" in ended(world)
    assert ended(world, absent=(A, B)) == ""
    assert world.joined == [JoinRecords((A, B), True)]
    assert set(world.raised_at_collect[-1]) == {A, B, C}, "their copies are used"


def test_absent_must_be_known() -> None:
    """A mistyped name would give up nothing and hide the missing node."""
    assert "correct --absent" in ended(world_of(A, B, C), absent=(D,))


def test_retired_nodes_do_not_count() -> None:
    """A disk that was replaced years ago is not missing."""
    world = world_of(A, B, C)
    world.nodes[A].knows = (A, B, C, D)
    world.retired = (D,)
    world.nodes[B].silent = True
    assert ended(world) == ""
    assert world.joined == [JoinRecords((B,), False)]


def test_heads_tell_the_ack_quorum_when_no_note_does() -> None:
    """A cluster whose record was never noted; then the bound is decided behind COLLECT, and none may be missing."""
    world = world_of(A, B, C)
    world.ack_quorum = 0
    world.nodes[B].silent = True
    assert "no note says the ack quorum" in ended(world)
    assert not committed(world)


@pytest.mark.hazard("clone-meets-production")
def test_restore_is_refused_while_an_owner_answers() -> None:
    """A copy of ZooKeeper, restored for a test, would fence production."""
    world = world_of(A, B, C)
    world.tree = ClusterSeen(CLUSTER, FIRST_ERA, False, 4, 2)
    world.owners = ("10.0.0.7:6651",)
    refusal = ended(world)
    assert "10.0.0.7:6651" in refusal
    assert "--take-over --ends-era 1" in refusal
    assert "--ends-era 1" in ended(world, take_over=True), "nothing proves that this ZooKeeper is older"
    assert world.tree.version == 4
    assert ended(world, take_over=True, ends_era=1) == ""
    assert world.tree.era == Era(2, R1)


def test_finished_restore_that_is_repeated_has_nothing_to_do() -> None:
    """An operator repeats the command, as the page says. A healthy cluster goes on."""
    world = serving(Era(3, R2))
    restore = Restore(RestoreRequest(R1))
    assert run(world, restore) == RestoreEnded(remark=f"already restored, era 3: nothing to do. {DAMAGED} 3")
    assert (restore.step, restore.era) == (RestoreStep.DONE, Era(3, R2))
    assert world.tree == serving(Era(3, R2)).tree


def test_sound_cluster_that_was_never_restored_has_nothing_to_do() -> None:
    """With its owners, too. Nothing invites to end it."""
    world = serving(FIRST_ERA)
    assert run(world, Restore(RestoreRequest(R1))) == RestoreEnded(
        remark=f"this cluster is sound, era 1: nothing to do. {DAMAGED} 1"
    )
    assert world.tree == serving(FIRST_ERA).tree


@pytest.mark.parametrize("change", ["refuses", "higher", "rival", "damaged"])
def test_older_zookeeper_is_taken_over_without_its_era(change: str) -> None:
    """One node proves it: its data is newer than the records, or in a higher era, or in another one of this number.
    Or folders are missing. The others start yet."""
    world = serving(Era(3, R2))
    assert world.tree is not None
    for node in world.nodes.values():
        node.joined = False
    if change == "refuses":
        world.nodes[B].refuses = Era(3, R2)
    elif change == "damaged":
        world.tree = world.tree._replace(is_damaged=True)
    else:
        world.nodes[B].era = Era(4, R2) if change == "higher" else Era(3, "3" * 32)
    refusal = ended(world)
    assert "--take-over" in refusal
    assert "--ends-era" not in refusal
    assert "era 3 serves" in ended(world, take_over=True, ends_era=2)
    assert ended(world, take_over=True) == ""
    assert world.tree.era == Era(5 if change == "higher" else 4, R1)


@pytest.mark.hazard("clone-meets-production")
@pytest.mark.parametrize("owners", [(), ("10.0.0.7:6651",)])
@pytest.mark.parametrize("change", ["starts", "refused the former one", "unregistered"])
def test_era_that_serves_is_not_ended_by_a_repeated_command(change: str, owners: tuple[str, ...]) -> None:
    """Its storage nodes have not joined it yet, just after the restore: that proves nothing. Nor does it that the nodes
    of production are not registered in a copy of its ZooKeeper."""
    world = serving(Era(3, R2))
    world.owners = owners
    assert world.tree is not None
    for node in world.nodes.values():
        node.joined = change == "unregistered"
        node.refuses = Era(2, R1) if change == "refused the former one" else None
    if change == "unregistered":
        world.tree = world.tree._replace(registered=())
    before = world.tree
    for ends_era in (0, 2):
        for take_over in (False, True):
            refusal = ended(world, take_over=take_over, ends_era=ends_era)
            assert f"era 3 serves, and not era {ends_era}" in refusal if ends_era else "--ends-era 3" in refusal
    assert world.tree == before
    assert ended(world, take_over=True, ends_era=3) == ""
    assert world.tree.era == Era(4, R1)


def test_sound_cluster_is_taken_over_only_by_its_era() -> None:
    """The answer says what ends; --take-over alone, or another era, is a mistake."""
    world = serving(Era(3, R2))
    refusal = ended(world, take_over=True)
    assert "--take-over --ends-era 3" in refusal
    assert "10.0.0.7:6651" in refusal
    for ends_era in (2, 4):
        assert f"era 3 serves, and not era {ends_era}" in ended(world, take_over=True, ends_era=ends_era)
    assert world.tree == serving(Era(3, R2)).tree
    assert ended(world, take_over=True, ends_era=3) == ""
    assert world.tree is not None
    assert world.tree.era == Era(4, R1)


def test_restore_whose_commit_had_no_answer_is_done_although_its_era_serves() -> None:
    """It ended era 3, and era 4 serves: that is its own."""
    world = serving(Era(3, R2))
    restore = Restore(RestoreRequest(R1, take_over=True, ends_era=3))
    effect = run(world, restore, until=lambda each: isinstance(each, CommitEra))
    world.perform(effect)
    (effect,) = restore.handle(EraCommitted(WriteStatus.CONFLICT))
    assert go_on(world, restore, effect) == ""
    assert world.tree is not None
    assert world.tree.era == Era(4, R1)


def test_restore_that_another_performer_has_finished_says_so() -> None:
    """It has found nothing itself: that is not told as zeros."""
    world = world_of(A, B, C)
    run(world, Restore(RestoreRequest(R1)), until=lambda each: isinstance(each, RaiseEras))
    second = Restore(RestoreRequest(R2))
    claim = run(world, second, until=lambda each: isinstance(each, ClaimEra))
    assert ended(world) == ""
    assert committed(world)
    claimed = world.perform(claim)
    assert claimed is not None
    (survey,) = second.handle(claimed)
    surveyed = world.perform(survey)
    assert surveyed is not None
    assert second.handle(surveyed) == [RestoreEnded(remark=FINISHED_ELSEWHERE)]


@pytest.mark.parametrize("dry_run", [False, True])
def test_topic_that_is_not_there_cannot_be_accepted(dry_run: bool) -> None:
    """A name that is mistyped would be found out only when the review asks again."""
    world = world_of(A, B, C)
    world.review = ("public/default/a",)
    assert "public/shop/nope" in ended(world, accepted=("all", "public/shop/nope"), dry_run=dry_run)
    assert not committed(world)
    assert ended(world, accepted=("public/default/a", TOPIC), dry_run=dry_run) == ""


def test_absent_takes_a_unique_prefix() -> None:
    """Tables show 8 digits of an incarnation."""
    one, two = Incarnation("2e60d171" + "0" * 24), Incarnation("2e60d172" + "0" * 24)
    world = world_of(A, B, C, one, two)
    for name in (one, two):
        world.nodes[name].silent = True
    assert "matches 2 storage nodes" in ended(world, absent=(Incarnation("2e60d17"),))
    assert "names 77777777" in ended(world, absent=(Incarnation("7" * 8),))
    assert ended(world, absent=(Incarnation("2e60d171"),)) == ""
    assert world.joined == [JoinRecords((one, two), True)]


def test_directories_of_two_clusters_are_refused() -> None:
    """One wrong address would mix two clusters."""
    world = world_of(A, B, C)
    world.tree = ClusterSeen("d" * 32, FIRST_ERA, False, 0, 2)
    assert "of one cluster" in ended(world)


def test_restore_that_stopped_at_its_review_is_resumed_under_its_id_and_accepted() -> None:
    """Nothing is served until an operator has accepted what cannot be proved."""
    world = world_of(A, B, C)
    world.review = ("public/default/a", "public/default/b")
    assert "2 findings" in ended(world)
    assert not committed(world)
    assert "public/default/b" in ended(world, restore_id=R2, accepted=("public/default/a",))
    assert ended(world, restore_id=R2, accepted=("public/default/a", "public/default/b")) == ""
    assert committed(world)
    assert {node.era for node in world.nodes.values()} == {Era(2, R1)}


@pytest.mark.parametrize("at", [WriteRecords, CommitEra])
def test_performer_whose_claim_was_taken_over_writes_nothing_more(at: type[RestoreEffect]) -> None:
    """It was slow; another metadata service has resumed the restore, and has committed it."""
    world = world_of(A, B, C)
    slow = Restore(RestoreRequest(R1))
    effect = run(world, slow, until=lambda each: isinstance(each, at))
    resumed = Restore(RestoreRequest(R2))
    resuming = run(world, resumed, until=lambda each: isinstance(each, CommitEra))
    before = world.tree
    refusal = go_on(world, slow, effect) if at is WriteRecords else ""
    if at is CommitEra:
        event = world.perform(effect)
        assert event == EraCommitted(WriteStatus.CONFLICT)
    else:
        assert "another performer" in refusal
    assert world.tree == before
    assert go_on(world, resumed, resuming) == ""


def test_commit_without_a_definite_answer_is_looked_up() -> None:
    """The record may have been written: then the restore is done, and begins no further era."""
    world = world_of(A, B, C)
    restore = Restore(RestoreRequest(R1))
    effect = run(world, restore, until=lambda each: isinstance(each, CommitEra))
    world.perform(effect)
    (survey,) = restore.handle(EraCommitted(WriteStatus.UNKNOWN))
    assert go_on(world, restore, survey) == ""
    assert world.tree is not None
    assert world.tree.era == Era(2, R1)


def test_tree_that_is_older_than_the_nodes_takes_an_era_above_theirs() -> None:
    """ZooKeeper's data of era 1 came back; the nodes are in era 2."""
    world = world_of(A, B, C)
    world.tree = ClusterSeen(CLUSTER, FIRST_ERA, False, 9, 2)
    for node in world.nodes.values():
        node.era = Era(2, R2)
    assert ended(world) == ""
    assert world.tree.era == Era(3, R1)


def test_dry_run_raises_and_writes_nothing() -> None:
    """Also on a cluster that serves."""
    world = world_of(A, B, C)
    world.tree = ClusterSeen(CLUSTER, FIRST_ERA, False, 4, 2)
    world.owners = ("10.0.0.7:6651",)
    world.review = ("public/default/a",)
    end = run(world, Restore(RestoreRequest(R1, dry_run=True)))
    assert isinstance(end, RestoreEnded)
    assert end.refusal == ""
    assert end.remark.startswith("A restore would be refused now: topic owners of this cluster still answer: 10.0.0.7:")
    assert world.joined == [JoinRecords((), False)]
    assert world.tree == ClusterSeen(CLUSTER, FIRST_ERA, False, 4, 2)
    assert {node.era for node in world.nodes.values()} == {FIRST_ERA}


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", [Survey, ClaimEra, RaiseEras, Collect, JoinRecords, WriteRecords, CommitEra])
def test_restore_whose_performer_crashes_at_any_step_is_resumed(at: type[RestoreEffect], is_done: bool) -> None:
    """By the next request, under the id that was claimed. is_done: the step was done, and its answer was lost."""
    world = world_of(A, B, C)
    effect = run(world, Restore(RestoreRequest(R1)), until=lambda each: isinstance(each, at))
    if is_done:
        world.perform(effect)
    claimed = world.tree is not None
    assert committed(world) or ended(world, restore_id=R2) == ""
    assert world.tree is not None
    assert (world.tree.era, world.tree.restoring) == (Era(2, R1 if claimed else R2), False)
    assert {node.era for node in world.nodes.values()} == {world.tree.era}
