"""Runs in which a disk is replaced, and ZooKeeper is lost while another storage node is silent. Its operator gives
nothing up.

    two of the three members of an open ledger have all of it, and the third one nothing yet; then the disk of one of
    the two is replaced by an empty one, and the store is lost: at once, or once repairers have written that the
    directory is emptied. The other one of the two is cut off from the restorer

What is checked
- At once: the restore waits for the silent node, and no message is lost.
- Emptied: the restore does not wait, and no message is lost.
"""

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.topic.serving import TopicSettings
from tests.simulation.clients.producer_client import Input
from tests.simulation.cluster import Rules
from tests.simulation.run import Run
from tests.simulation.servers.metadata.emptied_nodes import emptied_path
from tests.simulation.servers.metadata.restorer import decode_cluster
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.shapes import CURSOR_TICKS, RETURN_TICKS, Shape

#: from when on the third member lags, and how often the run looks at what it waits for
FIRST_TICK, LOOK_TICKS = 300, 5
SILENT_TICKS = 1500
#: a short lag, at a time; then the third member gets everything, and another one lags
LAG_TICKS = 150


def _shape() -> Shape:
    settings = TopicSettings(
        add_timeout_ms=200, tick_ms=80, retry_ms=120, rejoin_after_ms=300, ledger_entries_max=12,
        return_grace_ms=RETURN_TICKS, cursor_timeout_ms=CURSOR_TICKS, cursor_timeout_ms_max=CURSOR_TICKS,
    )  # fmt: skip
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(60), resumes=True), 1) for n in range(2)]
    return Shape(
        nodes=4, readers=0, questioners=0, settings=settings, inputs=inputs, pace=(10, 60),
        only_faults=("owner pause",), restores=True, repair=True,
    )  # fmt: skip


class ReplacedDisk(Run):
    """A seed."""

    def __init__(self, seed: int, rules: Rules | None = None, *, emptied: bool) -> None:
        super().__init__(seed, rules, _shape())
        self._emptied = emptied
        self.world.after(self.world.rng.randint(FIRST_TICK, 900), "a node lags", self._lag)

    def _lag(self) -> None:
        """One node gets nothing from the owners for a while: a ledger that begins then is at two of its members."""
        cluster, world = self.cluster, self.world
        if not self.faults.on:
            return
        third = world.rng.choice(list(cluster.nodes.values()))
        until = world.now + LAG_TICKS
        for owner in cluster.owners:
            cluster.network.cuts[owner, third.name] = until
        self._look(third, until)

    def _look(self, third: StorageServer, until: int) -> None:
        record = self._newest()
        if record is not None and self._is_at_two(record, third):
            others = [self._server(node) for node in record.members if self._server(node) is not third]
            self.world.rng.shuffle(others)
            self._replace(*others)
        elif self.world.now < until:
            self.world.after(LOOK_TICKS, "looks for a ledger", lambda: self._look(third, until))
        else:
            self.world.after(LAG_TICKS, "a node lags", self._lag)

    def _newest(self) -> LedgerMetadata | None:
        topic = next(iter(self.cluster.watch.topics.values()))
        data = self.cluster.store.get(f"ledgers/{topic.ledgers[-1]}")[0] if topic.ledgers else None
        return None if data is None else decode_ledger(data)

    def _is_at_two(self, record: LedgerMetadata, third: StorageServer) -> bool:
        """Whether more than the head of this ledger is acknowledged, and only two nodes have anything of it."""
        topic = next(iter(self.cluster.watch.topics.values()))
        if record.state is not LedgerState.OPEN or third.incarnation not in record.members:
            return False
        holders = [node for node in self.cluster.nodes.values() if node.disk.held(record.ledger_id)]
        return topic.confirmed.get(record.ledger_id, -1) >= 1 and len(holders) == 2 and third not in holders

    def _server(self, node: Incarnation) -> StorageServer:
        return self.cluster.nodes[Incarnation(node.split(".")[0])]

    def _replace(self, doomed: StorageServer, silent: StorageServer) -> None:
        self.world.count("disk replaced before a restore")
        replaced = doomed.incarnation
        self.faults.lose_directory(doomed, self.world.rng.randint(20, 60))
        if self._emptied:
            self._lose_when_emptied(replaced, silent)
        else:
            self._lose(silent)

    def _lose_when_emptied(self, replaced: Incarnation, silent: StorageServer) -> None:
        if self.cluster.store.get(emptied_path(replaced))[0] is not None:
            self._lose(silent)
        elif self.faults.on:
            self.world.after(LOOK_TICKS, "waits for repair", lambda: self._lose_when_emptied(replaced, silent))

    def _lose(self, silent: StorageServer) -> None:
        cluster, world = self.cluster, self.world
        for owner in cluster.owners.values():
            cluster.crash(owner)
            world.after(50, f"{owner.name} starts again", lambda o=owner: cluster.revive(o))  # type: ignore[misc]
        cluster.eras.lose(lost=True, copied=None)
        parts = cluster.eras.restore(performers=1)
        parts.gives_up = False
        [restorer] = cluster.eras.restorers
        cluster.network.cuts[restorer.name, silent.name] = world.now + SILENT_TICKS

        def changed(_path: str, _before: bytes | None, after: bytes | None) -> None:
            assert after is not None
            _, restoring = decode_cluster(after)
            away = cluster.network.cut(restorer.name, silent.name)
            world.count("restored without the silent node", not restoring and away)
            world.count("restored with the silent node", not restoring and not away)

        parts.store.observers.append(changed)
