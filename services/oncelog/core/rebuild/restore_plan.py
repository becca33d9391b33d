"""The steps of a restore of a lost ZooKeeper, and whom it must ask before it may go on.

    PLAN     survey: the tree, all nodes that answer, what their notes name      --dry run--> COLLECT, JOIN, the end
    CLAIM    compare-and-set of the cluster's record: RESTORING, era e, restore id r      --conflict--> PLAN
    RAISE    every known node stores (e, r) durably              --a node has a higher ballot--> PLAN with a higher era
    COLLECT  the inventory and the notes of each raised node      --they name an unknown node--> RAISE that one, too
    JOIN     records of era e, and the list of what cannot be proved
    REVIEW   that list is empty or accepted; otherwise the restore ends here, and is resumed by the next request
    WRITE    the records, below the root of era e
    COMMIT   compare-and-set of the cluster's record: SERVING

Rules
- N counts the nodes that a cookie's note, a head or an answer names and that are neither retired nor removed. A restore
  goes on when more than half of them have stored (e, r), and all but Qa-1: then no owner of a lower era gets Qa answers
  for anything (hazard restore-at-too-few-nodes). Qa is the lowest that any owner ever wrote with; unknown: 1.
- A retired node has no vote. Until it is known to be emptied it is one of the missing, because an entry that it and
  another missing node had is nowhere else (hazard replaced-disk-is-missing). `absent` gives it up, too.
- (e, r) is a ballot. Of one era a node stores one restore id, so of two restores one gets more than half. The other
  takes a higher era and begins again (hazard two-restores).
- The era is also above that of each copy: a copy stays for days, and a right that is revoked in the new era must win
  over it in the next restore (hazard revoked-right-returns).
- A node that only another node's note names is raised like the others; notes are read again behind each node's record
  of the era, so the last one that joined is not overlooked (hazard unnoted-member).
- A node whose disk went back has forgotten what it held, so it counts as missing, although its copies are used (hazard
  older-disk-is-missing).
- `absent` names nodes that will never come back. They leave N. If with them more than Qa-1 are missing, something may
  be lost that nobody can name: every topic gives up, and rights stay closed until they are confirmed.
- A restore of a cluster of which an owner still answers needs `take_over`: a test on a copy of ZooKeeper would fence
  production (hazard clone-meets-production). A cluster is sound if enough of its storage nodes serve in it, and
  none has a higher era. Then nothing is to do.
- An era that serves is ended only by `take_over` with this era in `ends_era`, also while its storage nodes start yet:
  a command that is repeated ends no era twice. It needs no `ends_era` if a node has proved that the tree is older than
  its data (it refuses the tree, or is in a higher era), or if folders of the era are missing. `ends_era` of another era
  is always refused.
- Each claim is a compare-and-set, and every write checks its version: of two performers of one restore the older can
  write nothing more.

Source: Paxos (ballots, majorities), BookKeeper's recovery of a lost ledger, HDFS's journal quorums.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from oncelog.core.era import ERA_MAX, FIRST_ERA, Era
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
    RestoreStep,
    Survey,
    Surveyed,
    WriteRecords,
)
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus

#: Of `accepted`: everything in the review.
ACCEPT_ALL = "all"
FINISHED_ELSEWHERE = (
    "another metadata service has finished this restore: its audit lines say what it found, and "
    "`oncelog admin backup drill` what is there now"
)
#: Of a node that is retired, and not emptied.
REPLACED = "replaced or given up, and repair had not yet copied all that it had: ledgers may be on no other node"
_NAMED_MAX = 10


@dataclass(slots=True)
class _Census:
    """The nodes of one attempt. answered: in the last survey, and those that were found later."""

    knowledge: Knowledge = field(default_factory=Knowledge)
    answered: dict[Incarnation, NodeSeen] = field(default_factory=dict)
    raised: dict[Incarnation, None] = field(default_factory=dict)
    asked: dict[Incarnation, None] = field(default_factory=dict)
    collected: dict[Incarnation, NodeSeen] = field(default_factory=dict)


class Restore:
    """One performer's attempt. Drop it after RestoreEnded; another request begins another one."""

    def __init__(self, request: RestoreRequest) -> None:
        self.request = request
        self.step = RestoreStep.PLAN
        #: the ballot, from the plan on
        self.era = FIRST_ERA
        self.cluster_id = ""
        self._version = ABSENT_VERSION
        #: the highest era that refused this restore's
        self._outbid = 0
        self._census = _Census()
        self._gives_up = False
        self._has_joined = False
        #: of a dry run: why a restore would not begin
        self._remark = ""

    def begin(self) -> list[RestoreEffect]:
        return [Survey()]

    def handle(self, event: RestoreEvent) -> list[RestoreEffect]:
        """An event that does not answer the newest effect is dropped."""
        match event, self.step:
            case Surveyed(), RestoreStep.PLAN:
                return self._surveyed(event)
            case Claimed(), RestoreStep.CLAIM:
                return self._claimed(event)
            case ErasRaised(), RestoreStep.RAISE:
                return self._raised(event)
            case Collected(), RestoreStep.COLLECT:
                return self._collected(event)
            case RecordsJoined(), RestoreStep.JOIN:
                return self._joined(event)
            case RecordsWritten(), RestoreStep.WRITE:
                return self._written(event)
            case EraCommitted(), RestoreStep.COMMIT:
                return self._committed(event)
            case (
                Surveyed()
                | Claimed()
                | ErasRaised()
                | Collected()
                | RecordsJoined()
                | RecordsWritten()
                | EraCommitted(),
                _,
            ):
                return []
            case _:
                assert_never(event)

    # --- PLAN, CLAIM ---

    def _surveyed(self, event: Surveyed) -> list[RestoreEffect]:
        if self._is_committed(event.tree):
            self.step = RestoreStep.DONE
            return [RestoreEnded(remark="" if self._has_joined else FINISHED_ELSEWHERE)]
        self._census = _Census(event.knowledge, dict(event.nodes))
        refusal = self._identity_refusal(event)
        if refusal is None and event.tree is not None and not event.tree.restoring:
            end = self._left_alone(event.tree, event)
            if end is not None and self.request.dry_run:
                would = "be refused" if end.refusal else "do nothing"
                self._remark = f"A restore would {would} now: {end.refusal or end.remark}"
            elif end is not None:
                self.step = RestoreStep.REFUSED if end.refusal else RestoreStep.DONE
                self.era = self.era if end.refusal else event.tree.era
                return [end]
        refusal = refusal or self._absent_refusal() or self._too_few(self._sound(event.nodes))
        if refusal is not None:
            return self._refuse(refusal)
        if self.request.dry_run:
            return self._collect(tuple(event.nodes))
        era = self._ballot(event)
        if era is None:
            return self._refuse(f"no era is left: this cluster had {ERA_MAX} of them")
        self.era, self.step = era, RestoreStep.CLAIM
        version = event.version if event.tree is None else event.tree.version
        return [ClaimEra(self.cluster_id, era, version)]

    def _is_committed(self, tree: ClusterSeen | None) -> bool:
        """Whether a commit without a definite answer was applied."""
        return tree is not None and not tree.restoring and tree.era == self.era != FIRST_ERA

    def _is_sound(self, tree: ClusterSeen, event: Surveyed) -> bool:
        """Whether the cluster that the tree shows has lost nothing that a restore would bring back."""
        lower = all(seen.era == tree.era or seen.era.number < tree.era.number for seen in event.nodes.values())
        joined = {node: None for node, seen in event.nodes.items() if seen.joined and node in tree.registered}
        joined |= dict.fromkeys(event.knowledge.replaced)  # what they had is lost to no restore while ZooKeeper serves
        return lower and event.knowledge.era <= tree.era.number and self._too_few(joined) is None

    @staticmethod
    def _is_lost(tree: ClusterSeen, event: Surveyed) -> bool:
        """Whether anything proves that the tree is older than the data, or has lost records. A node that starts yet
        proves nothing."""
        eras = [seen.era for seen in event.nodes.values()]
        higher = any(era != tree.era and era.number >= tree.era.number for era in eras)
        refused = any(not seen.joined and seen.refuses == tree.era for seen in event.nodes.values())
        return tree.is_damaged or higher or refused or event.knowledge.era > tree.era.number

    def _left_alone(self, tree: ClusterSeen, event: Surveyed) -> RestoreEnded | None:
        """The answer if the era that the tree shows to serve is not ended by this request."""
        request, number, owners = self.request, tree.era.number, _listed(event.owners)
        if request.ends_era not in (0, number):
            return RestoreEnded(
                f"era {number} serves, and not era {request.ends_era}: nothing is changed. If you have given this "
                "command before, its restore is done"
            )
        sound = self._is_sound(tree, event)
        if sound and not request.take_over:
            done = "this cluster is sound" if tree.era == FIRST_ERA else "already restored"
            ends = f"If records are damaged, all are restored by --take-over --ends-era {number}"
            return RestoreEnded(remark=f"{done}, era {number}: nothing to do. {ends}")
        lost = not sound and self._is_lost(tree, event)
        words = "--take-over" if lost else f"--take-over --ends-era {number}"
        if request.take_over:
            if lost or request.ends_era == number:
                return None
        elif event.owners:
            return RestoreEnded(
                f"topic owners of this cluster still answer: {owners}. If they belong to another ZooKeeper, this one "
                f"must not restore the cluster; otherwise repeat with {words}, which ends them"
            )
        elif lost or tree.era == FIRST_ERA or self._too_few(_in_era(tree.era, event)) is not None:
            return None
        state = (
            f"this cluster is sound: {len(tree.registered)} storage nodes have joined its era {number}"
            if sound
            else f"era {number} serves, and no storage node says that this ZooKeeper is older than its data. If "
            "storage nodes start yet, repeat this in a moment"
        )
        return RestoreEnded(
            f"{state}. --take-over ends that era: all its metadata services and topic owners "
            f"({owners or 'none answers now'}) start again, and its records are written anew. If you are sure, repeat "
            f"with {words}"
        )

    def _ballot(self, event: Surveyed) -> Era | None:
        """The restore that the tree shows, unless a node has stored another one of its era or a higher one."""
        eras = [seen.era for seen in event.nodes.values()]
        highest = max([self._outbid, event.knowledge.era, *(era.number for era in eras)])
        tree = event.tree
        if tree is not None:
            unrivalled = all(era == tree.era or era.number < tree.era.number for era in eras)
            if tree.restoring and unrivalled and highest <= tree.era.number and self._outbid < tree.era.number:
                return tree.era
            highest = max(highest, tree.era.number)
        return Era(highest + 1, self.request.restore_id) if highest < ERA_MAX else None

    def _claimed(self, event: Claimed) -> list[RestoreEffect]:
        if event.status is not WriteStatus.OK:
            self.step = RestoreStep.PLAN
            return [Survey()]
        self._version = event.version
        return self._raise(tuple(self._census.answered))

    # --- RAISE, COLLECT ---

    def _raise(self, nodes: tuple[Incarnation, ...]) -> list[RestoreEffect]:
        self.step = RestoreStep.RAISE
        self._census.asked |= dict.fromkeys(nodes)
        return [RaiseEras(nodes, self.era)]

    def _raised(self, event: ErasRaised) -> list[RestoreEffect]:
        rivals = [era.number for era in event.eras.values() if era is not None and self._is_rival(era)]
        if rivals:
            self._outbid = max(self._outbid, *rivals)
            self.step = RestoreStep.PLAN
            return [Survey()]
        self._census.raised |= {node: None for node, era in event.eras.items() if era == self.era}
        answered = self._census.answered
        sound = {node: None for node in self._census.raised if node not in answered or not answered[node].limbo}
        return self._too_few_or(sound) or self._collect(tuple(self._census.raised))

    def _is_rival(self, era: Era) -> bool:
        return era != self.era and era.number >= self.era.number

    def _collect(self, nodes: tuple[Incarnation, ...]) -> list[RestoreEffect]:
        self.step = RestoreStep.COLLECT
        return [Collect(nodes)]

    def _collected(self, event: Collected) -> list[RestoreEffect]:
        census = self._census
        if not self.request.dry_run:
            rivals = [seen.era.number for seen in event.nodes.values() if self._is_rival(seen.era)]
            # A copy may be of a later era than all nodes. Notes of this one must win over it in the next restore.
            rivals += [event.knowledge.era] if event.knowledge.era > self.era.number else []
            if rivals:
                self._outbid = max(self._outbid, *rivals)
                self.step = RestoreStep.PLAN
                return [Survey()]
        census.knowledge = census.knowledge.corrected_by(event.knowledge)
        census.collected = {
            node: seen for node, seen in event.nodes.items() if self.request.dry_run or seen.era == self.era
        }
        found = tuple(node for node in self._counted() if node not in census.asked and node not in self.request.absent)
        if found and not self.request.dry_run:
            return self._raise(found)
        sound = self._sound(census.collected)
        missing = tuple(node for node in self._counted(absent=True) if node not in sound)
        self._gives_up = len(missing) > self._missing_max
        refused = self._too_few_or(sound, quorum_known=True)
        if refused:
            return refused
        self.step = RestoreStep.JOIN
        return [JoinRecords(missing, self._gives_up)]

    # --- JOIN to COMMIT ---

    def _joined(self, event: RecordsJoined) -> list[RestoreEffect]:
        self._has_joined = True
        accepted = self.request.accepted
        unknown = [each for each in accepted if each not in (ACCEPT_ALL, *event.review) and each not in event.topics]
        if unknown:
            self.step = RestoreStep.REVIEW
            return [
                RestoreEnded(f"--accept names topics that were not found: {_listed(unknown)}. Correct it, and repeat")
            ]
        if self.request.dry_run:
            self.step = RestoreStep.DONE
            return [RestoreEnded(remark=self._remark)]
        self.step = RestoreStep.REVIEW
        left = () if ACCEPT_ALL in accepted else tuple(each for each in event.review if each not in accepted)
        if left:
            return [
                RestoreEnded(
                    f"{len(left)} findings cannot be proved: {_listed(left)}. The report shows each; nothing serves "
                    "until you repeat with --accept TOPIC for each, or --accept all"
                )
            ]
        self.step = RestoreStep.WRITE
        return [WriteRecords(self.era, self._version, self._gives_up, self.request.absent)]

    def _written(self, event: RecordsWritten) -> list[RestoreEffect]:
        if event.fenced:
            return self._refuse(
                "another performer has claimed this restore, so this one has stopped: show its progress"
            )
        self.step = RestoreStep.COMMIT
        return [CommitEra(self.era, self._version, self._gives_up)]

    def _committed(self, event: EraCommitted) -> list[RestoreEffect]:
        if event.status is WriteStatus.OK:
            self.step = RestoreStep.DONE
            return [RestoreEnded()]
        # What the record says now tells whether it was applied.
        self.step = RestoreStep.PLAN
        return [Survey()]

    # --- whom to ask ---

    def _counted(self, *, absent: bool = False) -> list[Incarnation]:
        """N, in a fixed order. absent: with the nodes that are named absent and were not in limbo."""
        census = self._census
        names = {**dict.fromkeys(census.answered), **dict.fromkeys(census.knowledge.nodes)}
        left = () if absent else self.request.absent
        return sorted(node for node in names if census.knowledge.nodes.get(node, True) and node not in left)

    @property
    def emptied(self) -> frozenset[Incarnation]:
        """The nodes that count no more: other nodes have all that they had."""
        return frozenset(node for node, counts in self._census.knowledge.nodes.items() if not counts)

    @property
    def _missing_max(self) -> int:
        return max(1, self._census.knowledge.ack_quorum) - 1

    @staticmethod
    def _sound(nodes: Mapping[Incarnation, NodeSeen]) -> dict[Incarnation, None]:
        return {node: None for node, seen in nodes.items() if not seen.limbo}

    def _identity_refusal(self, event: Surveyed) -> str | None:
        ids = {seen.cluster_id: node for node, seen in event.nodes.items() if seen.cluster_id}
        if event.tree is not None:
            ids.setdefault(event.tree.cluster_id, Incarnation("ZooKeeper"))
        if len(ids) > 1:
            shown = ", ".join(f"{node} has {cluster_id}" for cluster_id, node in sorted(ids.items()))
            return f"not all storage nodes are of one cluster: {shown}. Correct the list of nodes, or the address"
        if not event.nodes:
            return "no storage node with data has answered: name storage nodes by --nodes HOST:PORT, and start them"
        self.cluster_id = next(iter(ids))
        return None

    def _absent_refusal(self) -> str | None:
        """Also takes unique prefixes of incarnations as what they name."""
        known = sorted({*self._census.answered, *self._census.knowledge.nodes})
        whole: list[Incarnation] = []
        for given in self.request.absent:
            matches = [node for node in known if node.startswith(given)]
            if len(matches) > 1:
                return f"--absent {given} matches {len(matches)} storage nodes: {_listed(matches)}. Use a longer prefix"
            whole.append(matches[0] if matches else given)
        self.request = replace(self.request, absent=tuple(whole))
        for node in whole:
            seen = self._census.answered.get(node)
            if seen is not None and not seen.limbo:
                return f"storage node {node} answers, so it is not absent: leave out --absent {node}"
            if seen is None and node not in self._census.knowledge.nodes:
                return f"no note and no storage node names {node}: correct --absent"
        return None

    def _too_few_or(self, sound: Mapping[Incarnation, object], *, quorum_known: bool = False) -> list[RestoreEffect]:
        refusal = self._too_few(sound, quorum_known=quorum_known)
        return [] if refusal is None else self._refuse(refusal)

    def _too_few(self, sound: Mapping[Incarnation, object], *, quorum_known: bool = False) -> str | None:
        """Why these are not enough. Nodes that are named absent do not count. quorum_known: all heads were read, which
        say it if no note does."""
        counted, knowledge = self._counted(), self._census.knowledge
        missing = [node for node in counted if node not in sound]
        present = len(counted) - len(missing)
        voters = [node for node in counted if node not in knowledge.replaced]
        votes = sum(1 for node in voters if node in sound)
        quorum = knowledge.ack_quorum
        few = len(missing) > self._missing_max and (quorum_known or quorum > 0)
        if not few and 2 * votes > len(voters):
            return None
        needed = len(voters) // 2 + 1 + present - votes
        if quorum_known or quorum:
            needed = max(needed, len(counted) - self._missing_max)
        reason = "" if quorum else ", because no note says the ack quorum"
        shown = [f"{node} ({REPLACED})" if node in knowledge.replaced else node for node in missing]
        return (
            f"{present} of {len(counted)} storage nodes can be used, and at least {needed} are needed{reason}. "
            f"Missing, or with a directory that has lost records: {_listed(shown)}. Start them; or name "
            "those that are lost for good by --absent NODE"
        )

    def _refuse(self, refusal: str) -> list[RestoreEffect]:
        self.step = RestoreStep.REFUSED
        return [RestoreEnded(refusal)]


def _in_era(era: Era, event: Surveyed) -> dict[Incarnation, None]:
    found = {node: None for node, seen in event.nodes.items() if seen.era == era and not seen.limbo}
    return found | dict.fromkeys(event.knowledge.replaced)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else shown
