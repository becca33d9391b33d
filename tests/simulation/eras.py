"""The eras of a run's cluster: its store is lost or replaced, restorers restore the records, and all processes move.

Owners and metadata replicas of the former era end when they see the cluster's record, each some time later. If the
former store is still there, some of them have its address: they go on with it, and start again with it, until their
operator corrects the address.
"""

from typing import TYPE_CHECKING

from oncelog.core.era import Era
from oncelog.core.ids import LedgerId
from oncelog.core.rebuild.result import CopiedRecords
from tests.simulation.servers.restorer import Restored, RestoreParts, Restorer
from tests.simulation.servers.store import Store
from tests.simulation.watches.new_era import begin_era

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.servers.metadata_server import MetadataServer
    from tests.simulation.servers.owner_server import OwnerServer

#: until a process has seen the record of the new era
SEEN_TICKS = 400


class Eras:
    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.world = cluster.world
        #: of the restore in progress
        self.parts: RestoreParts | None = None
        self.restorers: list[Restorer] = []
        #: how many have begun, and will begin at a certain moment
        self.restores = self.awaited = 0

    @property
    def owed_below(self) -> LedgerId:
        """The first ledger of the newest era whose restore was beyond the bound; 0: none was."""
        return LedgerId(0) if self.parts is None else self.parts.owed_below

    @property
    def is_restoring(self) -> bool:
        return self.parts is not None and not self.parts.done

    def restore(self, *, lost: bool, copied: CopiedRecords | None, performers: int) -> list[Restorer]:
        """lost: the former store is gone, and does not stay beside the new one."""
        cluster, rng = self.cluster, self.world.rng
        cluster.store.lost = lost
        copies = [] if self.parts is None else self.parts.copies
        if copied is not None:
            copies = [*copies, (cluster.store.era.number, copied)]
        parts = self.parts = RestoreParts(
            self.world, cluster.network, cluster.nodes, cluster.store, cluster.shape.settings.pages, self._committed,
            copies, self.owed_below,
        )  # fmt: skip
        self.restores += 1
        began: list[Restorer] = []
        for _ in range(performers):
            number = len(self.restorers) + 1
            restorer = Restorer(parts, f"restorer{number}", f"{number:032x}")
            self.restorers.append(restorer)
            began.append(restorer)
            self.world.after(rng.randint(1, 300), f"{restorer.name} starts", lambda r=restorer: cluster.revive(r))  # type: ignore[misc]

        return began

    def _committed(self, era: Era, restored: Restored) -> None:
        cluster, rng = self.cluster, self.world.rng
        former = cluster.store
        store = Store(self.world, cluster.network, era)
        store.faults, store.stalled_until = former.faults, former.stalled_until
        store.begin(restored.records)
        assert self.parts is not None
        if restored.rebuilt.beyond_bound:
            self.world.count("restore beyond the bound")
            self.parts.owed_below = LedgerId(era.first_id)
        begin_era(cluster.watch, store, restored)
        for topic_id in [each for each in cluster.clients if each not in cluster.watch.topics]:
            cluster.forget_topic(topic_id)
        former.successor = store
        for server in cluster.nodes.values():
            server.post(rng.randint(1, SEEN_TICKS), "reads the cluster's record", server.join_era)
        processes: list[OwnerServer | MetadataServer] = [*cluster.owners.values(), *cluster.metadata]
        for process in processes:
            stays = not former.lost and rng.random() < 0.5
            process.home = former if stays else None
            ticks = rng.randint(1, SEEN_TICKS) + (rng.randint(300, 2000) if stays else 0)
            self.world.after(ticks, f"{process.name} sees the new era", lambda p=process: self._moves(p))  # type: ignore[misc]

    def _moves(self, process: "OwnerServer | MetadataServer") -> None:
        process.home = None
        if process.alive and process.store is not self.cluster.store:
            self.world.count("process moved to the new era")
            self.cluster.restart(process)
