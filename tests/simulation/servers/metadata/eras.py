"""The eras of a run's cluster: its store is lost or replaced, restorers restore the records, and all processes move.

Two operators may restore at the same time, each into another ensemble: a new one, or the one that is there. Then both
commit, in eras of their own, or one gives up. If storage nodes wait in the era of that one, the other restores again.

Owners and metadata replicas of the former era end when they see the cluster's record, each some time later. If the
former store is still there, some of them have its address: they go on with it, and start again with it, until their
operator corrects the address.
"""

from typing import TYPE_CHECKING

from oncelog.core.era import Era
from oncelog.core.ids import LedgerId
from oncelog.verify.violation import Violation
from tests.simulation.servers.metadata.restorer import Restored, RestoreParts, Restorer
from tests.simulation.servers.nodes.kept_copies import KeptCopies
from tests.simulation.servers.store.store import Store
from tests.simulation.watches.new_era import begin_era

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.servers.metadata.metadata_server import MetadataServer
    from tests.simulation.servers.owners.owner_server import OwnerServer

#: until a process has seen the record of the new era
SEEN_TICKS = 400
#: between two looks of an operator
LOOK_TICKS = 300
#: until all that a process has sent has arrived, also through a clog
SENT_TICKS = 1000


class Eras:
    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.kept = KeptCopies()
        #: of the newest loss, or of the operators who fear one: each restores into an ensemble of its own
        self.ensembles: list[RestoreParts] = []
        #: {number: the era}, of those that were committed; and the ensemble of the newest one
        self.served: dict[int, Era] = {}
        self._serving: RestoreParts | None = None
        self.restorers: list[Restorer] = []
        #: how many have begun, and will begin at a certain moment
        self.restores = self.awaited = 0
        #: until this tick something comes that was on its way, and that changes who serves
        self._comes_until = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to them: a run closes its topics then, and nothing places a topic any more."""
        return not self.is_restoring and self.world.now > self._comes_until

    def _comes_within(self, ticks: int) -> None:
        self._comes_until = max(self._comes_until, self.world.now + ticks)

    @property
    def is_restoring(self) -> bool:
        """Or will restore, because a storage node waits for a higher era than that of the cluster."""
        return not all(each.done for each in self.ensembles) or self._is_awaited()

    def lose(self, *, lost: bool, copied: dict[str, bytes] | None) -> None:
        """lost: the former store is gone, and does not stay beside the new one. copied: a walk of its records."""
        self.cluster.store.lost = self.cluster.store.was_lost = lost
        self.ensembles = []
        self.restores += 1
        if copied is not None:
            self.kept.add(self.cluster.store.era, copied, self.world.now)

    def restore(self, *, performers: int, ends: Era | None = None) -> RestoreParts:
        """Into a new ensemble. ends: into the one of this era, whose records may be as they were."""
        cluster = self.cluster
        settings = cluster.shape.settings
        parts = RestoreParts(
            self.world, cluster.network, cluster.nodes, cluster.store, settings.pages, settings.ack_quorum,
            self._committed, self.kept, ends,
        )  # fmt: skip
        self.ensembles.append(parts)
        for _ in range(performers):
            self._begin(parts)
        return parts

    def _begin(self, parts: RestoreParts) -> None:
        number = len(self.restorers) + 1
        restorer = Restorer(parts, f"restorer{number}", f"{number:032x}")
        self.restorers.append(restorer)
        ticks = self.world.rng.randint(1, 300)
        self.world.after(ticks, f"{restorer.name} starts", lambda: self.cluster.revive(restorer))

    def abandon(self, parts: RestoreParts) -> None:
        """Its operator gives up, although storage nodes may be in its era and wait. The other one gets to know that."""
        if parts.done:
            return
        self.world.count("restore abandoned")
        self._comes_within(SENT_TICKS)  # a storage node may yet be raised into its era
        parts.abandoned = True
        for restorer in self.restorers:
            if restorer.parts is parts and restorer.alive:
                restorer.crash()
        self._look_for_waiting()

    def _look_for_waiting(self) -> None:
        self.world.after(LOOK_TICKS, "an operator looks for storage nodes that wait", self._look_for_waiting)
        parts = self._serving
        if parts is not None and all(each.done for each in self.ensembles) and self._is_awaited():
            self.world.count("restore for storage nodes that wait")
            parts.ends = self.cluster.store.era
            self._begin(parts)

    def _is_awaited(self) -> bool:
        era = self.cluster.store.era
        return any(node.alive and node.core.era.number > era.number for node in self.cluster.nodes.values())

    def _committed(self, parts: RestoreParts, era: Era, restored: Restored) -> None:
        if self.served.setdefault(era.number, era) != era:
            raise Violation("one restore of an era", f"{era} and {self.served[era.number]} were committed")
        cluster, rng = self.cluster, self.world.rng
        former = cluster.store
        store = Store(self.world, cluster.network, era)
        store.faults, store.stalled_until = former.faults, former.stalled_until
        store.begin(restored.records)
        if era.number < former.era.number:
            self.world.count("restore committed below a higher era")
            store.successor, store.outbid = former, True
            self._stay_with(store, 1.0, restarts=True)
            return
        self._serving = parts
        if restored.rebuilt.beyond_bound:
            self.world.count("restore beyond the bound")
            self.kept.owed_below = LedgerId(era.first_id)
            self.kept.given_up |= dict.fromkeys(restored.given_up)
        begin_era(cluster.watch, store, former.era, restored)
        for topic_id in [each for each in cluster.clients if each not in cluster.watch.topics]:
            cluster.forget_topic(topic_id)
        former.successor = store
        for server in cluster.nodes.values():
            server.post(rng.randint(1, SEEN_TICKS), "reads the cluster's record", server.join_era)
        self._stay_with(former, 0.0 if former.lost else 0.5)

    def return_later(self, former: Store, ticks: int) -> None:
        """The ensemble that was lost will be there again, and some processes will have its address."""
        self._comes_within(ticks)
        self.world.after(ticks, "the lost ensemble returns", lambda: self._lost_returns(former))

    def _lost_returns(self, former: Store) -> None:
        if former.lost and former.successor is not None:
            self.world.count("lost store returned")
            former.lost = False
            self._stay_with(former, 0.7, restarts=True)

    def _stay_with(self, store: Store, probability: float, *, restarts: bool = False) -> None:
        """Some processes have the address of this store until their operator corrects it; the others go on to the new
        one. restarts: they have not been with it."""
        cluster, rng = self.cluster, self.world.rng
        processes: list[OwnerServer | MetadataServer] = [*cluster.owners.values(), *cluster.metadata]
        for process in processes:
            stays = probability > 0 and rng.random() < probability
            process.home = store if stays else None
            if stays and restarts and process.alive:
                cluster.restart(process)
            ticks = rng.randint(1, SEEN_TICKS) + (rng.randint(300, 2000) if stays else 0)
            self.world.after(ticks, f"{process.name} sees the new era", lambda p=process: self._moves(p))  # type: ignore[misc]

    def _moves(self, process: "OwnerServer | MetadataServer") -> None:
        process.home = None
        if process.alive and process.store is not self.cluster.store:
            self.world.count("process moved to the new era")
            self.cluster.restart(process)
