"""The schedule: a seed repeats it, every kind comes, and every quorum survives each step."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog_lab.chaos.schedule import make_schedule
from oncelog_lab.faults.kinds import (
    DEFAULT_KINDS,
    DESTRUCTIVE,
    NODE_KINDS,
    VICTIM_COMPONENT,
    WHOLE_CLUSTER,
    Component,
    Fault,
    FaultKind,
    fits,
    spare_members,
    why_not,
)

WHOLE = {Component.OWNER: 3, Component.STORAGE: 3, Component.METADATA: 2, Component.ZOOKEEPER: 3, Component.REDIS: 1}
seeds = st.integers(min_value=-(2**63), max_value=2**63)
clusters = st.fixed_dictionaries({part: st.integers(min_value=0, max_value=7) for part in Component})


def possible(counts: dict[Component, int]) -> list[FaultKind]:
    return [kind for kind in DEFAULT_KINDS if why_not(kind, counts) is None]


@given(seeds, st.floats(min_value=1, max_value=3000))
def test_seed_repeats_its_schedule(seed: int, seconds: float) -> None:
    """Exactly, in whatever order the kinds were named."""
    first = make_schedule(seed, seconds=seconds, kinds=list(FaultKind), counts=WHOLE)
    assert first == make_schedule(seed, seconds=seconds, kinds=list(FaultKind)[::-1], counts=WHOLE)


def test_schedule_is_the_same_in_every_version() -> None:
    """A seed in a report always means these faults. Another seed means others."""
    steps = make_schedule(7, seconds=200, kinds=DEFAULT_KINDS, counts=WHOLE)
    assert [[str(fault.kind) for fault in step.faults] for step in steps[:4]] == [
        ["node-drain"],
        ["rollout"],
        ["volume-full", "zookeeper-leader-kill"],
        ["storage-kill", "owner-pause"],
    ]
    assert steps != make_schedule(8, seconds=200, kinds=DEFAULT_KINDS, counts=WHOLE)


@given(seeds, clusters, st.data())
def test_every_quorum_survives_each_step(seed: int, counts: dict[Component, int], data: st.DataObject) -> None:
    """One of three copies, a minority of ZooKeeper, never the last owner. Faults of a whole node come alone."""
    kinds = data.draw(st.lists(st.sampled_from(possible(counts)), unique=True)) if possible(counts) else []
    if not kinds:
        with pytest.raises(InvalidArgument, match="no fault to plan"):
            make_schedule(seed, seconds=600, kinds=kinds, counts=counts)
        return
    for step in make_schedule(seed, seconds=600, kinds=kinds, counts=counts):
        injected = [fault.kind for fault in step.faults]
        assert set(injected) <= set(kinds)
        assert 1 <= len(injected) <= 2
        assert len(injected) == 1 or not set(injected) & set(WHOLE_CLUSTER)
        taken = Counter(VICTIM_COMPONENT[kind] for kind in injected if kind in VICTIM_COMPONENT)
        assert taken <= Counter(spare_members(counts))


@given(seeds)
def test_every_kind_comes_before_any_comes_again(seed: int) -> None:
    """So a long run includes every kind, and a short one does not repeat one kind."""
    steps = make_schedule(seed, seconds=2000, kinds=list(FaultKind), counts=WHOLE)
    kinds = [fault.kind for step in steps for fault in step.faults]
    assert set(kinds[: len(FaultKind)]) == set(FaultKind)


@given(seeds, st.floats(min_value=1, max_value=5000))
def test_schedule_takes_about_the_requested_time(seed: int, seconds: float) -> None:
    """By its expected durations. It has at least one step."""
    steps = make_schedule(seed, seconds=seconds, kinds=list(FaultKind), counts=WHOLE)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert sum(step.nominal_s for step in steps[:-1]) <= seconds


def test_some_steps_have_two_faults() -> None:
    """The control for the test of the quorums."""
    steps = [s for n in range(20) for s in make_schedule(n, seconds=900, kinds=list(FaultKind), counts=WHOLE)]
    pairs = [tuple(fault.kind for fault in step.faults) for step in steps if len(step.faults) == 2]
    assert len(pairs) > 10
    assert all(fits(pair, WHOLE) for pair in pairs)


def test_faults_that_small_clusters_survive() -> None:
    """Two storage nodes, a single owner and two ZooKeeper servers have none to spare."""
    small = {Component.OWNER: 1, Component.STORAGE: 2, Component.METADATA: 1, Component.ZOOKEEPER: 1}
    assert possible(small) == []
    assert not fits([FaultKind.OWNER_KILL, FaultKind.OWNER_PAUSE], {Component.OWNER: 2})
    assert fits([FaultKind.OWNER_KILL, FaultKind.OWNER_PAUSE], {Component.OWNER: 3})
    assert not fits([FaultKind.STORAGE_KILL, FaultKind.VOLUME_FULL], {Component.STORAGE: 9})
    assert fits([FaultKind.OWNER_KILL, FaultKind.STORAGE_PAUSE], WHOLE)
    assert not fits([FaultKind.NODE_CUT, FaultKind.REDIS_KILL], WHOLE)
    assert why_not(FaultKind.ZOOKEEPER_KILL, {Component.ZOOKEEPER: 2}) is not None
    external = WHOLE | {Component.ZOOKEEPER: 0, Component.REDIS: 0}
    assert [kind for kind in FaultKind if why_not(kind, external)] == [FaultKind.ZOOKEEPER_KILL, FaultKind.REDIS_KILL]
    assert all(why_not(kind, WHOLE | {Component.METADATA: 1}) for kind in NODE_KINDS)


def test_control_pod_is_killed_alone_and_only_if_named() -> None:
    """It measures the cost of a kill itself, so nothing else happens at the same time. No cluster is too small."""
    assert FaultKind.CONTROL_POD_KILL not in DEFAULT_KINDS
    assert why_not(FaultKind.CONTROL_POD_KILL, {}) is None
    assert not fits([FaultKind.CONTROL_POD_KILL, FaultKind.METADATA_KILL], WHOLE)
    assert fits([FaultKind.CONTROL_POD_KILL], WHOLE)


def test_destructive_kinds_come_only_if_named() -> None:
    """They delete or damage the data of a storage node. At most one of three nodes at a time."""
    assert set(FaultKind) - set(DEFAULT_KINDS) == {*DESTRUCTIVE, FaultKind.CONTROL_POD_KILL}
    assert not fits([FaultKind.STORAGE_LOSS, FaultKind.BIT_ROT], WHOLE)
    assert why_not(FaultKind.STORAGE_LOSS, WHOLE | {Component.STORAGE: 2}) is not None


def test_kind_that_the_cluster_does_not_survive_is_refused() -> None:
    """Such a fault would stop the cluster."""
    with pytest.raises(InvalidArgument, match="this cluster does not survive storage-kill"):
        make_schedule(1, seconds=60, kinds=[FaultKind.STORAGE_KILL], counts={Component.STORAGE: 2})


def test_pick_does_not_depend_on_the_order_of_candidates() -> None:
    """The order in which a cluster lists its members must not change the victim."""
    fault = Fault(FaultKind.OWNER_KILL, pick=5)
    assert fault.choose(["c", "a", "b"]) == fault.choose(["b", "c", "a"]) == "c"
