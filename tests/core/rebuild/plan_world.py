"""The commands of stories about the steps of a restore, and these steps, in words.

    nodes abc; node b silent         storage nodes, each of which has noted the names of all; b does not answer
    zookeeper 3.2                    the record of the cluster: era 3, of restore 2, serves
    restore 1 absent=b until=raise   restore 1, as an operator asks for it, up to the step that raises the nodes
    go_on 1                          the rest of it

The docstrings of the methods `do_…` say more. `3.2` is era 3 of restore 2, and `1` the first era.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

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
from tests.core.rebuild.join_world import letters, nodes, shortened

CLUSTER, TOPIC = "9" * 32, "public/default/orders"


@dataclass
class Node:
    """knows: the nodes whose names it has noted."""

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


class Running(Restore):
    """zookeeper: the name of its ensemble. effect: the newest, not yet performed."""

    def __init__(self, request: RestoreRequest, zookeeper: str = "") -> None:
        super().__init__(request)
        self.zookeeper = zookeeper
        self.effect: RestoreEffect
        (self.effect,) = self.begin()


class PlanWorld:
    def __init__(self) -> None:
        self.nodes: dict[Incarnation, Node] = {}
        self.given: tuple[Incarnation, ...] = ()
        #: {ensemble: its record of the cluster}
        self.trees: dict[str, ClusterSeen] = {}
        self.ack_quorum = 2
        self.emptied = self.replaced = self.wrongly_emptied = nodes("")
        self.owners: tuple[str, ...] = ()
        self.findings: tuple[str, ...] = ()
        self.copied_era = FIRST_ERA.number
        self.running: dict[str, Running] = {}
        self.texts: set[str] = set()
        self.happened: list[str] = []

    def do_nodes(self, *names: str) -> None:
        self.given = tuple(node for name in names for node in _named(name))
        self.nodes = {node: Node(self.given) for node in self.given}

    def do_node(self, names: str, *words: str, knows: str = "", era: str = "", refuses: str = "") -> None:
        """Further ones know all. words: silent, answers; limbo: its directory has lost records; serves in its era, or
        starts yet. refuses: it waits before a record of this era, which is older than its data."""
        assert {*words} <= {"silent", "answers", "limbo", "serves", "starts"}, words
        for name in _named(names):
            node = self.nodes.setdefault(name, Node((*self.nodes, name)))
            node.silent = (node.silent or "silent" in words) and "answers" not in words
            node.limbo = node.limbo or "limbo" in words
            node.joined = (node.joined or "serves" in words) and "starts" not in words
            node.knows = nodes(knows) or node.knows
            node.era = _era(era) if era else node.era
            node.refuses = _era(refuses) if refuses else node.refuses

    def do_notes(
        self, ack_quorum: str = "2", replaced: str = "", emptied: str = "", wrongly_emptied: str = "", copied: str = "1"
    ) -> None:
        """replaced: other disks are at their places, and repair has not copied all that they had. emptied: it has.
        wrongly_emptied: a note of a former era says so. copied: the era of a copy, which is read with the contents."""
        self.ack_quorum, self.replaced, self.emptied = int(ack_quorum), nodes(replaced), nodes(emptied)
        self.wrongly_emptied, self.copied_era = nodes(wrongly_emptied), int(copied)

    def do_findings(self, *topics: str) -> None:
        """What the rebuilt records leave to an operator."""
        self.findings = topics

    def do_zookeeper(self, era: str, *words: str, registered: str = "", cluster: str = "9") -> None:
        """registered: its storage nodes. words: `damaged`: folders of its era are missing."""
        members, is_damaged = nodes(registered), words == ("damaged",)
        self.trees[""] = ClusterSeen(cluster * 32, _era(era), False, 4, 2, members, is_damaged)

    def do_owners(self, *addresses: str) -> None:
        """Topic owners that answer."""
        self.owners = addresses

    # --- restores -----------------------------------------------------------------------------------------------------

    def do_restore(
        self, name: str, *words: str, absent: str = "", accept: str = "", ends_era: str = "0", until: str = "",
        zookeeper: str = "",
    ) -> None:  # fmt: skip
        """words: take_over, dry_run. zookeeper: another ensemble."""
        assert {*words} <= {"take_over", "dry_run"}, words
        gone = nodes(absent) if absent.isalpha() else (Incarnation(absent),) if absent else ()
        accepted = tuple(accept.split(",")) if accept else ()
        request = RestoreRequest(name * 32, gone, accepted, "take_over" in words, "dry_run" in words, int(ends_era))
        self.running[name] = Running(request, zookeeper)
        self.do_go_on(name, until=until)

    def do_go_on(self, name: str, until: str = "") -> None:
        run = self.running[name]
        said = [self._step(run), *self._steps_until(run, until)]
        if isinstance(run.effect, RestoreEnded):
            said.append(self._ended(run, run.effect))
        words = "; ".join(said).removeprefix("surveys; ")
        self.happened.append(f"{name}: {shortened(words).replace('0' * 24, '')}")

    def _ended(self, restore: Restore, end: RestoreEnded) -> str:
        """A text that this story has shown is cut."""
        emptied = f" without the emptied {letters(sorted(restore.emptied))}" if restore.emptied else ""
        era = f" in {restore.era}" if end.remark else ""
        text = end.refusal or end.remark
        said = f"{re.split('[:.] ', text)[0]} …" if text in self.texts else text
        self.texts.add(text)
        return f"{restore.step.value}{era}{emptied}{f': {said}' if text else ''}"

    def do_crash(self, name: str, step: str) -> None:
        """Its performer dies before this step, or after its last one: done."""
        self._steps_until(Running(RestoreRequest(name * 32)), step)

    def do_commit(self, name: str, status: str) -> None:
        """The era is committed, and the answer has this status."""
        run = self.running[name]
        self._perform(run)
        (run.effect,) = run.handle(EraCommitted(WriteStatus[status]))

    def do_look(self) -> None:
        """Say what ZooKeeper and the nodes have."""
        tree = self.trees[""]
        state = f"zookeeper {'restores' if tree.restoring else 'serves'} {tree.era}"
        self.happened.append(shortened(f"{state}; {self._eras(self.nodes)}"))

    def _steps_until(self, run: Running, step: str) -> list[str]:
        said: list[str] = []
        while not isinstance(run.effect, RestoreEnded) and run.step.value != step:
            said.append(self._step(run))
        return said

    def _step(self, run: Running) -> str:
        words, event = self._perform(run)
        (run.effect,) = run.handle(event)
        return words

    def _perform(self, run: Running) -> tuple[str, RestoreEvent]:
        """(What is done, and its answer.)"""
        tree = self.trees.get(run.zookeeper)
        version = -1 if tree is None else tree.version
        match effect := run.effect:
            case Survey():
                names = dict.fromkeys(self.given)
                while len(found := names | self._noted_by(names)) > len(names):
                    names = found
                seen = {name: self._seen(name) for name in names if not self.nodes[name].silent}
                wrong = Knowledge(dict.fromkeys(self.wrongly_emptied, False), replaced=frozenset(self.wrongly_emptied))
                return "surveys", Surveyed(tree, seen, self._knowledge(seen).with_further(wrong), self.owners)
            case ClaimEra(cluster_id, era, expected):
                if version != expected:
                    return f"cannot claim {era}", Claimed(WriteStatus.CONFLICT)
                self.trees[run.zookeeper] = ClusterSeen(cluster_id, era, True, version + 1, self.ack_quorum)
                return f"claims {era}", Claimed(WriteStatus.OK, version + 1)
            case RaiseEras(names, era):
                asked = {name: self.nodes.get(name, Node((), silent=True)) for name in names}
                eras = {name: None if node.silent else node.raised_to(era) for name, node in asked.items()}
                return f"raises {letters(names)}", ErasRaised(eras)
            case Collect(names):
                answering = [name for name in names if not self.nodes[name].silent]
                knowledge = self._knowledge(answering).with_further(Knowledge(era=self.copied_era))
                collected = Collected({name: self._seen(name) for name in answering}, knowledge)
                return f"collects {self._eras(answering)}", collected
            case JoinRecords(missing, gives_up):
                without = f" without {letters(missing)}" if missing else ""
                joined = RecordsJoined(self.findings, frozenset({*self.findings, TOPIC}))
                return f"joins{without}{', gives up' if gives_up else ''}", joined
            case WriteRecords(_, expected, gives_up, absent):
                without = f", absent {letters(absent)}" if absent else ""
                return f"writes{without}{', gives up' if gives_up else ''}", RecordsWritten(version != expected)
            case CommitEra(era, expected, rights_closed):
                if version != expected:
                    return f"cannot commit {era}", EraCommitted(WriteStatus.CONFLICT)
                self.trees[run.zookeeper] = ClusterSeen(CLUSTER, era, False, version + 1, self.ack_quorum)
                return f"commits{', rights closed' if rights_closed else ''}", EraCommitted(WriteStatus.OK)
            case RestoreEnded():
                raise AssertionError(f"{effect} is not performed")

    def _noted_by(self, asked: Collection[Incarnation]) -> dict[Incarnation, None]:
        answering = [self.nodes[name] for name in asked if not self.nodes[name].silent]
        return {each: None for node in answering for each in node.knows if each in self.nodes}

    def _seen(self, name: Incarnation) -> NodeSeen:
        node = self.nodes[name]
        return NodeSeen(CLUSTER, node.era, node.limbo, node.joined, node.refuses)

    def _knowledge(self, asked: Collection[Incarnation]) -> Knowledge:
        known = {each: each not in self.emptied for name in asked for each in self.nodes[name].knows}
        return Knowledge(known, self.ack_quorum, replaced=frozenset(self.replaced))

    def _eras(self, names: Collection[Incarnation]) -> str:
        eras = dict.fromkeys(self.nodes[name].era for name in names)
        return ", ".join(f"{letters(each for each in names if self.nodes[each].era == era)} in {era}" for era in eras)


def _named(name: str) -> tuple[Incarnation, ...]:
    """Of letters, or the beginning of one name."""
    return nodes(name) if name.isalpha() else (Incarnation(name.ljust(32, "0")),)


def _era(text: str) -> Era:
    number, _, restore_id = text.partition(".")
    return Era(int(number), restore_id * 32)
