"""Storage nodes and one tree of a restore, for tests of `restore_plan`."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import (
    Claimed,
    ClaimEra,
    ClusterSeen,
    Collect,
    Collected,
    CommitEra,
    EraCommitted,
    ErasRaised,
    JoinRecords,
    Knowledge,
    NodeSeen,
    RaiseEras,
    RecordsJoined,
    RecordsWritten,
    RestoreEffect,
    RestoreEnded,
    RestoreEvent,
    RestoreRequest,
    Survey,
    Surveyed,
    WriteRecords,
)
from oncelog.core.rebuild.restore_plan import Restore
from oncelog.core.records.status import WriteStatus

CLUSTER = "c" * 32
A, B, C, D = (Incarnation(letter * 32) for letter in "abcd")
R1, R2 = "1" * 32, "2" * 32
TOPIC = "public/default/orders"


@dataclass
class Node:
    """knows: the nodes whose cookies it has noted."""

    knows: Collection[Incarnation]
    era: Era = FIRST_ERA
    limbo: bool = False
    silent: bool = False
    joined: bool = False
    refuses: Era | None = None

    def raised_to(self, era: Era) -> Era:
        if era.number > self.era.number:
            self.era = era
        return self.era


@dataclass
class World:
    """Storage nodes and one tree; `perform` does what one effect asks."""

    nodes: dict[Incarnation, Node]
    tree: ClusterSeen | None = None
    ack_quorum: int = 2
    #: emptied; and those that are not yet
    retired: tuple[Incarnation, ...] = ()
    replaced: tuple[Incarnation, ...] = ()
    #: emptied by a note of a former era; the copies that are read with the contents know better
    wrongly_retired: tuple[Incarnation, ...] = ()
    owners: tuple[str, ...] = ()
    review: tuple[str, ...] = ()
    #: of the newest copy that nodes keep
    copied_era: int = FIRST_ERA.number
    #: the first nodes that the operator has given
    given: tuple[Incarnation, ...] = (A, B, C)
    raised_at_collect: list[dict[Incarnation, Era]] = field(default_factory=list)
    joined: list[JoinRecords] = field(default_factory=list)

    def perform(self, effect: RestoreEffect) -> RestoreEvent | None:
        match effect:
            case Survey():
                names = dict.fromkeys(self.given)
                while len(found := names | self._named(names)) > len(names):
                    names = found
                seen = {name: self._seen(name) for name in names if not self.nodes[name].silent}
                wrong = Knowledge(dict.fromkeys(self.wrongly_retired, False), replaced=frozenset(self.wrongly_retired))
                return Surveyed(self.tree, seen, self._knowledge(seen).with_further(wrong), self.owners)
            case ClaimEra():
                if self._version != effect.version:
                    return Claimed(WriteStatus.CONFLICT)
                self.tree = ClusterSeen(effect.cluster_id, effect.era, True, effect.version + 1, self.ack_quorum)
                return Claimed(WriteStatus.OK, self.tree.version)
            case RaiseEras():
                answers = {name: self.nodes.get(name, Node((), silent=True)) for name in effect.nodes}
                return ErasRaised(
                    {name: None if node.silent else node.raised_to(effect.era) for name, node in answers.items()}
                )
            case Collect():
                asked = [name for name in effect.nodes if not self.nodes[name].silent]
                self.raised_at_collect.append({name: self.nodes[name].era for name in asked})
                knowledge = self._knowledge(asked).with_further(Knowledge(era=self.copied_era))
                return Collected({name: self._seen(name) for name in asked}, knowledge)
            case JoinRecords():
                self.joined.append(effect)
                return RecordsJoined(self.review, frozenset({*self.review, TOPIC}))
            case WriteRecords():
                return RecordsWritten(fenced=self._version != effect.version)
            case CommitEra():
                if self._version != effect.version:
                    return EraCommitted(WriteStatus.CONFLICT)
                self.tree = ClusterSeen(CLUSTER, effect.era, False, effect.version + 1, self.ack_quorum)
                return EraCommitted(WriteStatus.OK)
            case RestoreEnded():
                return None

    @property
    def _version(self) -> int:
        return -1 if self.tree is None else self.tree.version

    def _named(self, asked: Collection[Incarnation]) -> dict[Incarnation, None]:
        nodes = [self.nodes[name] for name in asked if not self.nodes[name].silent]
        return {each: None for node in nodes for each in node.knows if each in self.nodes}

    def _seen(self, name: Incarnation) -> NodeSeen:
        node = self.nodes[name]
        return NodeSeen(CLUSTER, node.era, node.limbo, node.joined, node.refuses)

    def _knowledge(self, asked: Collection[Incarnation]) -> Knowledge:
        known = {each: each not in self.retired for name in asked for each in self.nodes[name].knows}
        return Knowledge(known, self.ack_quorum, replaced=frozenset(self.replaced))


def world_of(*names: Incarnation) -> World:
    return World({name: Node(knows=names) for name in names}, given=names)


def serving(era: Era) -> World:
    """A sound cluster, with its owner."""
    world = world_of(A, B, C)
    world.tree = ClusterSeen(CLUSTER, era, False, 4, 2, registered=(A, B, C))
    world.owners = ("10.0.0.7:6651",)
    for node in world.nodes.values():
        node.era, node.joined = era, True
    return world


def run(world: World, restore: Restore, until: Callable[[RestoreEffect], bool] = lambda _: False) -> RestoreEffect:
    """Perform effects until the end, or up to the first that `until` names, which is not performed."""
    (effect,) = restore.begin()
    while not until(effect):
        event = world.perform(effect)
        if event is None:
            break
        (effect,) = restore.handle(event)
    return effect


def go_on(world: World, restore: Restore, effect: RestoreEffect) -> str:
    """Perform the rest. Returns the refusal."""
    while (event := world.perform(effect)) is not None:
        (effect,) = restore.handle(event)
    assert isinstance(effect, RestoreEnded)
    return effect.refusal


def ended(world: World, **request: object) -> str:
    restore = Restore(RestoreRequest(**{"restore_id": R1} | request))  # type: ignore[arg-type]
    effect = run(world, restore)
    assert isinstance(effect, RestoreEnded)
    return effect.refusal


def committed(world: World) -> bool:
    return world.tree is not None and not world.tree.restoring
