"""Runs in which ZooKeeper and so many disks are lost at once that acknowledged messages are lost, too. The restore
names the disks absent, and what is lost is told.

    two of the three members of an open ledger have entries that the third one has not yet; then both disks are replaced
    by empty ones, the store is lost, and all owners crash

What is checked
- Nothing else is lost: each acknowledged message of which a remaining node has a copy is in the log in the end.
- Both chains say that something was given up, and every number that was ever given is below those of later messages.
- The instance that was told of a lost message is refused, and stores nothing more.
- Rights are closed.
"""

from collections.abc import Sequence
from dataclasses import replace

from oncelog.core.errors import OncelogError
from oncelog.core.formats.entry import SequenceMode, peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from oncelog.verify.violation import Violation
from tests.oracles.history import History
from tests.simulation.clients.producer_client import Input
from tests.simulation.cluster import Rules
from tests.simulation.run import Run
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.shapes import CURSOR_TICKS, RETURN_TICKS, Shape
from tests.simulation.watches.watching import TopicWatch

#: from when on disks may be lost, and for how long the third member lags before
FIRST_TICK, LAG_TICKS = 300, 80


def _shape() -> Shape:
    """Snapshots are rare: one of what is lost would tell producers that it is stored."""
    settings = TopicSettings(
        add_timeout_ms=200, tick_ms=80, retry_ms=120, rejoin_after_ms=300, ledger_entries_max=12,
        return_grace_ms=RETURN_TICKS, cursor_timeout_ms=CURSOR_TICKS, cursor_timeout_ms_max=CURSOR_TICKS,
        snapshot=SnapshotSettings(entries_max=10_000, interval_ms=100_000, idle_after_ms=100_000),
    )  # fmt: skip
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(60), resumes=True), 1) for n in range(2)]
    return Shape(
        nodes=4, readers=0, questioners=0, settings=settings, inputs=inputs, pace=(10, 60),
        only_faults=("owner pause",), restores=True,
    )  # fmt: skip


class LostDisks(Run):
    """A seed."""

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        super().__init__(seed, rules, _shape())
        #: entries that only the lost disks had for certain, and the number behind the last one that was ever given
        self.lost: dict[Position, None] = {}
        self.next_index = 0
        self.world.after(self.world.rng.randint(FIRST_TICK, 900), "disks will be lost", self._lag)

    @property
    def _topic(self) -> TopicWatch:
        return next(iter(self.cluster.watch.topics.values()))

    def _lag(self) -> None:
        """The third member of the open ledger gets nothing for a while."""
        topic, cluster, rng = self._topic, self.cluster, self.world.rng
        data = cluster.store.get(f"ledgers/{topic.ledgers[-1]}")[0] if topic.ledgers else None
        record = None if data is None else decode_ledger(data)
        if record is None or record.state is not LedgerState.OPEN or not self.faults.on:
            if self.faults.on:
                self.world.after(20, "disks will be lost", self._lag)
            return
        third, *doomed = rng.sample(record.members, 3)
        for owner in cluster.owners:
            cluster.network.cuts[owner, third.split(".")[0]] = self.world.now + LAG_TICKS + 20
        self.world.after(rng.randint(LAG_TICKS // 2, LAG_TICKS), "disks are lost", lambda: self._lose(doomed))

    def _lose(self, doomed: list[Incarnation]) -> None:
        cluster, topic = self.cluster, self._topic
        gone = [server for server in cluster.nodes.values() if server.incarnation in doomed]
        left = [server for server in cluster.nodes.values() if server not in gone]
        lost = [Position(topic.ledgers[-1], e) for e in self._only(topic.ledgers[-1], gone, left)]
        closed_are_whole = not any(self._only(each, gone, left) for each in cluster.watch.closed)
        if not self.faults.on:
            return
        if not lost or not closed_are_whole or len(gone) < 2:
            self.world.after(20, "disks will be lost", self._lag)
            return
        self.world.count("messages lost with their disks")
        self.lost = dict.fromkeys(lost)
        headers = [peek_header(data) for server in gone for data in server.disk.held(topic.ledgers[-1]).values()]
        self.next_index = max(header.next_index for header in headers)
        topic.confirmed[topic.ledgers[-1]] = EntryId(lost[0].entry_id - 1)
        for owner in cluster.owners.values():
            cluster.crash(owner)
            self.world.after(50, f"{owner.name} starts again", lambda o=owner: cluster.revive(o))  # type: ignore[misc]
        for server in gone:
            self.faults.lose_directory(server, self.world.rng.randint(20, 300))
        cluster.eras.lose(lost=True, copied=None)
        cluster.eras.restore(performers=1)

    @staticmethod
    def _only(ledger_id: LedgerId, gone: list[StorageServer], left: list[StorageServer]) -> list[EntryId]:
        kept = {entry for server in left for entry in server.disk.held(ledger_id)}
        return sorted({entry for server in gone for entry in server.disk.held(ledger_id)} - kept)

    def _check_input(self, name: str | None, ids: Sequence[int], topic_id: str) -> None:
        """A program that had ended by then publishes nothing again."""
        if not self.lost:
            super()._check_input(name, ids, topic_id)

    # --- the history --------------------------------------------------------------------------------------------------

    def check_history(self) -> None:
        if self.lost:
            [(topic_id, (history, producers, readers))] = self.cluster.clients.items()
            topic = self.cluster.watch.topics[topic_id]
            self.cluster.watch.fold_closed(topic, LedgerId(1 << 62))
            [parts] = self.cluster.eras.ensembles
            if not parts.rights_closed:
                raise Violation("rights", "messages are lost with their disks, and rights are open")
            told = self._without_lost(history)
            self.cluster.clients[topic_id] = (told, producers, readers)
        super().check_history()

    def _without_lost(self, history: History) -> History:
        """What clients were told, but for what is lost, and told to be."""
        fold, era = self._topic.fold, self.cluster.store.era
        after = [each for each in fold.entries.values() if each.header.ledger_id >= era.first_id and each.batch]
        if any(each.header.base_index < self.next_index for each in after):
            raise Violation("given up", f"numbers below {self.next_index} are given again")
        granted = {(e.grant.producer_id, e.grant.generation) for e in fold.entries.values() if e.grant is not None}
        kept, known = History(), dict[int, int]()
        for at, opened in enumerate(history.opens):
            if opened.instance in granted:
                known[at] = len(kept.opens)
                kept.opens.append(opened)
        deceived = dict[int, Position]()
        for append in history.appends:
            result = append.result
            positions = [] if result is None or isinstance(result, OncelogError) else [p.position for p in result]
            missing = [each for each in positions if each is not None and each not in fold.entries]
            for position in missing:
                if position not in self.lost:
                    raise Violation("no loss", f"{position} was acknowledged, and is lost although a disk has it")
                deceived.setdefault(append.opened, position)
            new = [each for each in positions if each is not None and each.ledger_id >= era.first_id]
            if new and append.opened in deceived:
                lost = deceived[append.opened]
                raise Violation("given up", f"an instance was told of {lost}, which is lost, and has stored {new[0]}")
            if append.opened in known:
                result = None if missing else result
                kept.appends.append(replace(append, opened=known[append.opened], result=result))
        self.world.count("instance of a lost message refused", len(deceived))
        return kept
