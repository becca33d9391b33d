"""One history of hazard answer-of-a-former-member: a ledger's record is restored to a backup from before the ledger was
CLOSED.

the topic is closed, so that its last ledger L is CLOSED; then all owners are down
two members of L are away until repair has replaced them; they return, and erase their copies
the record of L is restored: OPEN, with the former members; owners start, and the topic's takeover recovers L
the one member that holds L answers late; the other two answer ERASED, which proves nothing
the right record comes back, and the takeover ends
"""

from typing import TYPE_CHECKING

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.events import DrainRequested
from tests.simulation.faults.storage_faults import collect_all
from tests.simulation.servers.store.decoding import decode_ledger, decode_topic

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults

#: how long the record of a backup stays
RESTORED_TICKS = 500


def restore_record(faults: "Faults") -> None:
    """Once in a run."""
    if not faults.histories:
        faults.histories.append(RestoredRecord(faults))


class RestoredRecord:
    """The history, looked at every few ticks."""

    def __init__(self, faults: "Faults") -> None:
        self.faults = faults
        self.cluster = faults.cluster
        self.topic_id = self.cluster.topic_ids[0]
        self.ledger_id = LedgerId(-1)
        self.former: LedgerMetadata | None = None
        self.step = self._close
        self._look()

    def _look(self) -> None:
        if self.faults.on and not self.step():
            self.faults.world.after(10, "follows a history", self._look)

    def _record(self) -> LedgerMetadata | None:
        data, _ = self.cluster.store.get(f"ledgers/{self.ledger_id}")
        return None if data is None else decode_ledger(data)

    def _close(self) -> bool:
        """Owners drain; when the last ledger is CLOSED and has entries, all of them end."""
        data, _ = self.cluster.store.get(f"topics/{self.topic_id}")
        ledgers = [] if data is None else decode_topic(data).ledgers
        self.ledger_id = ledgers[-1].ledger_id if ledgers else LedgerId(-1)
        record = self._record()
        if record is None or (record.state is LedgerState.CLOSED and record.end < 1):
            return False
        if record.state is not LedgerState.CLOSED:
            for owner in self.cluster.owners.values():
                for shell in list(owner.topics.values()) if owner.alive else ():
                    serving = shell.core.serving
                    if shell.core.phase is Phase.SERVING and serving is not None and not serving.draining:
                        shell.handle(DrainRequested())
            return False
        for owner in self.cluster.owners.values():
            self.cluster.crash(owner)
        self.step = self._leave
        return False

    def _leave(self) -> bool:
        """When L is whole, two of its members go away."""
        record = self._record()
        if record is None or not record.verified:
            return False
        self.former = record
        for member in record.members[1:]:
            server = self.cluster.nodes[member.split(".")[0]]  # type: ignore[index]
            self.cluster.crash(server)
            self.cluster.expire(f"storage/{member}", server)
        self.step = self._replaced
        return False

    def _replaced(self) -> bool:
        """They return when L is whole without them."""
        record = self._record()
        assert self.former is not None
        if record is None or not record.verified or any(m in record.members for m in self.former.members[1:]):
            return False
        for server in self.cluster.nodes.values():
            self.cluster.revive(server)
        self.step = self._erased
        return False

    def _erased(self) -> bool:
        """They erase their copies; then the record of L is restored, and owners start."""
        assert self.former is not None
        if any(self.cluster.watch.copies.sound(member, self.ledger_id) for member in self.former.members[1:]):
            collect_all(self.faults)
            return False
        world, store, path = self.faults.world, self.cluster.store, f"ledgers/{self.ledger_id}"
        world.count("ledger record restored")
        right = store.records[path]
        store.records[path] = (next(d for d in store.past(path) if decode_ledger(d).state is LedgerState.OPEN), 0)

        def put_right() -> None:
            store.records[path] = right

        world.after(RESTORED_TICKS, "the right record is back", put_right)
        holder = self.former.members[0].split(".")[0]
        for owner in self.cluster.owners.values():
            self.cluster.network.clogs[owner.name, holder] = world.now + RESTORED_TICKS // 2
            self.cluster.revive(owner)
        return True
