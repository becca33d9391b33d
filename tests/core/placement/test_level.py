"""Raising the level: whoever starts, or is away, or raises it too, no process is left that does not know it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from oncelog.core.placement.level import (
    CountProcesses,
    FinalizeStep,
    KnownProcess,
    Level,
    LevelKept,
    LevelRaised,
    WriteLevel,
    after_count,
    after_read,
    start_refusal,
)

OLD, NEW = 8, 9
FORMER = Level(OLD)


@dataclass(frozen=True)
class Cluster:
    """version: of the record. registered, serving: {process: its version}."""

    level: Level = FORMER
    version: int = 0
    registered: tuple[tuple[str, int], ...] = ()
    serving: tuple[tuple[str, int], ...] = ()

    def written(self, level: Level, version: int) -> "Cluster":
        """A compare-and-set."""
        return replace(self, level=level, version=version + 1) if version == self.version else self


@dataclass(frozen=True)
class Start:
    """Registers, then reads the record, then serves or ends."""

    name: str
    version: int
    at: int = 0

    def step(self, cluster: Cluster) -> tuple[Cluster, "Start | None"]:
        if self.at == 0:
            return replace(cluster, registered=(*cluster.registered, (self.name, self.version))), replace(self, at=1)
        if start_refusal(cluster.level, self.version) is not None:
            return replace(cluster, registered=tuple(one for one in cluster.registered if one[0] != self.name)), None
        return replace(cluster, serving=(*cluster.serving, (self.name, self.version))), None


@dataclass(frozen=True)
class Raise:
    """Reads, then writes or counts, then writes what it counted."""

    target: int = NEW
    read: tuple[Level, int] | None = None
    counted: tuple[KnownProcess, ...] | None = None
    #: a rule that the tests leave out
    careless: bool = field(default=False)

    def step(self, cluster: Cluster) -> "tuple[Cluster, Raise | FinalizeStep]":
        if self.read is None:
            return cluster, replace(self, read=(cluster.level, cluster.version))
        level, version = self.read
        order = after_read(level, self.target)
        if self.careless and isinstance(order, WriteLevel):
            order, level = CountProcesses(), Level(level.stored, self.target)
        if isinstance(order, WriteLevel):
            return cluster.written(order.level, version), replace(self, read=None)
        if not isinstance(order, CountProcesses):
            return cluster, order
        if self.counted is None:
            counted = tuple(KnownProcess("owner", name, known) for name, known in cluster.registered)
            return cluster, replace(self, counted=counted)
        write, kept = after_count(level, self.target, self.counted)
        after = cluster.written(write.level, version)
        if after is cluster or kept is None:
            return after, replace(self, read=None, counted=None)
        return after, kept


def outcomes(cluster: Cluster, parts: tuple[Start | Raise, ...], seen: set[object] | None = None) -> Iterator[Cluster]:
    """The cluster at the end of every order of the parts' steps."""
    seen = set() if seen is None else seen
    if (cluster, parts) in seen:
        return
    seen.add((cluster, parts))
    if not parts:
        yield cluster
    for number, part in enumerate(parts):
        after, rest = part.step(cluster)
        others = parts[:number] + parts[number + 1 :]
        yield from outcomes(after, (*others, rest) if isinstance(rest, Start | Raise) else others, seen)


def too_old(cluster: Cluster) -> bool:
    return any(version < cluster.level.stored for _, version in cluster.serving)


@pytest.mark.hazard("start-races-finalize")
@pytest.mark.parametrize(
    "parts",
    [
        (Raise(), Start("old", OLD)),
        (Raise(), Start("new", NEW), Start("old", OLD)),
        (Raise(), Raise(), Start("old", OLD)),
        (Raise(), Raise(target=NEW + 1), Start("new", NEW)),
    ],
)
def test_every_order_of_starts_and_raises(parts: tuple[Start | Raise, ...]) -> None:
    """Who serves knows the stored level; and each level comes out in some order."""
    ends = list(outcomes(Cluster(), parts))
    assert not any(map(too_old, ends))
    assert {end.level.stored for end in ends} >= {OLD, NEW}


def test_a_raise_without_an_announcement_leaves_an_old_process() -> None:
    """What the rule is for: the start reads the old level, and is counted too late."""
    assert any(map(too_old, outcomes(Cluster(), (Raise(careless=True), Start("old", OLD)))))


@pytest.mark.hazard("away-node-of-an-older-version")
def test_storage_node_that_is_away_is_in_the_way() -> None:
    """It may come back, and all that are registered are new."""
    away = KnownProcess("storage node", "s-2:6660", OLD, away=True)
    write, kept = after_count(Level(OLD, NEW), NEW, [KnownProcess("owner", "o-1", NEW), away])
    assert write.level == Level(OLD)
    assert kept == LevelKept((away,))
    assert str(away) == "storage node s-2:6660 (version 8, away)"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (Level(NEW), LevelRaised()),
        (Level(NEW + 1), LevelRaised()),
        (Level(OLD), WriteLevel(Level(OLD, NEW))),
        (Level(OLD, NEW), CountProcesses()),
        (Level(OLD, NEW + 1), LevelKept((), NEW + 1)),
    ],
)
def test_next_step(level: Level, expected: FinalizeStep) -> None:
    """A raise that was interrupted goes on; one of a newer program is left to it."""
    assert after_read(level, NEW) == expected


@pytest.mark.hazard("late-rollback")
@pytest.mark.parametrize(
    ("level", "said"),
    [
        (Level(OLD), None),
        (Level(NEW), "this cluster has level 9, and this program knows level 8"),
        (Level(OLD, NEW), "being raised to level 9, and this program knows level 8"),
    ],
)
def test_start_is_refused_in_one_sentence(level: Level, said: str | None) -> None:
    """An operator reads what to start instead."""
    refusal = start_refusal(level, OLD)
    assert (refusal is None) is (said is None)
    assert said is None or said in str(refusal)
