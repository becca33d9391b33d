"""The metadata store, as ZooKeeper is: linearizable versioned writes, and reads that are only as new as asked for.

A synced read shows every write answered before it began. A read that is not synced may come from a follower that lags.
A write is attempted once: its reply may be lost, and then it was applied, or never is, or is applied a little later.
A stall holds everything back. A session that ends takes its ephemerals along.

One `Store` has the records of one era. A restore makes another one, its successor. Processes of the former era go on
with the former one, unless its data are lost: then nothing is answered, and what a process has read stays as it was.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.records.status import WriteStatus
from tests.simulation.network import Network
from tests.simulation.world import Process, World

ABSENT = -1
#: The version of a record from a backup. No write from it succeeds.
OLD = -2
Observer = Callable[[str, "bytes | None", "bytes | None"], None]


@dataclass(slots=True)
class StoreFaults:
    """Probabilities per write or read. lag_max: ticks that a follower may be behind."""

    lost_reply: float = 0.0
    #: of the lost replies: never applied; applied late
    not_applied: float = 0.4
    applied_late: float = 0.1
    lag_max: int = 0


def _below(parent: str, paths: Iterable[str]) -> list[str]:
    prefix = parent + "/"
    names = [path[len(prefix) :] for path in paths if path.startswith(prefix)]
    return [name for name in names if "/" not in name]


class Store:
    """{path: (bytes, version)}, with its past for lagging readers."""

    def __init__(self, world: World, network: Network, era: Era = FIRST_ERA) -> None:
        self.world = world
        self.network = network
        self.era = era
        #: of the next era, once its restore is committed
        self.successor: Store | None = None
        #: its data are lost; they were lost once, perhaps found since: what it was asked meanwhile is never answered
        self.lost = False
        self.was_lost = False
        #: of an era that was committed below one that served by then: no storage node ever takes anything of it
        self.outbid = False
        self.faults = StoreFaults()
        self.records: dict[str, tuple[bytes, int]] = {}
        self.stalled_until = 0
        #: reviews of storage nodes see the records of this tick; None: the present ones
        self.backup_of: int | None = None
        #: told of every change: (path, before, after)
        self.observers: list[Observer] = []
        #: {path: [(tick, bytes or None)]}, ascending
        self._past: dict[str, list[tuple[int, bytes | None]]] = {}

    @property
    def newest(self) -> "Store":
        """Of the newest era that is committed."""
        return self if self.successor is None else self.successor.newest

    def begin(self, records: dict[str, bytes]) -> None:
        """What a restore has written."""
        self.records = {path: (data, 0) for path, data in records.items()}
        self._past = {path: [(self.world.now, data)] for path, data in records.items()}

    # --- the state machine -------------------------------------------------------------------------------------------

    def put(
        self, path: str, data: bytes, version: int, created: tuple[tuple[str, bytes], ...] = ()
    ) -> tuple[WriteStatus, int]:
        """Compare-and-set; version ABSENT creates. created: (path, bytes) of records that are created with it."""
        if self.lost:
            return WriteStatus.UNKNOWN, ABSENT
        before = self.records.get(path)
        if (before[1] if before is not None else ABSENT) != version or any(new in self.records for new, _ in created):
            return WriteStatus.CONFLICT, ABSENT
        for new, content in created:
            self.records[new] = (content, 0)
            self._changed(new, None, content)
        self.records[path] = (data, version + 1)
        self._changed(path, None if before is None else before[0], data)
        return WriteStatus.OK, version + 1

    def _put_late(self, path: str, data: bytes, version: int, created: tuple[tuple[str, bytes], ...]) -> None:
        self.put(path, data, version, created)

    def remove(self, path: str) -> None:
        before = None if self.lost else self.records.pop(path, None)
        if before is not None:
            self._changed(path, before[0], None)

    def lose(self, path: str) -> Callable[[], None]:
        """Lose a record by mistake; no observer takes that for a deletion. Returns a function that restores it."""
        data, version = self.records.pop(path)
        self._past.setdefault(path, []).append((self.world.now, None))

        def restore() -> None:
            self.records[path] = (data, version)
            self._past[path].append((self.world.now, data))

        return restore

    def _changed(self, path: str, before: bytes | None, after: bytes | None) -> None:
        self._past.setdefault(path, []).append((self.world.now, after))
        for observer in self.observers:
            observer(path, before, after)

    def get(self, path: str) -> tuple[bytes | None, int]:
        return self.records.get(path, (None, ABSENT))

    def get_lagging(self, path: str) -> bytes | None:
        """The value at a follower that lags behind."""
        lag = self.world.rng.randint(0, self.faults.lag_max) if self.faults.lag_max else 0
        value = self.get_at(path, self.world.now - lag)
        self.world.count("stale read", value != self.get(path)[0])
        return value

    def get_at(self, path: str, tick: int) -> bytes | None:
        """The value after all changes of this tick and of the ticks before it."""
        value = None
        for changed, data in self._past.get(path, ()):
            if changed > tick:
                break
            value = data
        return value

    def past(self, path: str) -> list[bytes]:
        """Every value that the record ever had, oldest first."""
        return [data for _, data in self._past.get(path, ()) if data is not None]

    def children(self, parent: str) -> list[str]:
        """Names under `parent`, as of now."""
        return _below(parent, self.records)

    def ever(self, parent: str) -> list[str]:
        """Names that were ever under `parent`."""
        return _below(parent, self._past)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _delay(self, process: Process) -> int:
        held = max(0, self.stalled_until - self.world.now)
        if held:
            self.world.count("store call held by a stall")
        return held + self.network.delay(process.name, "store")

    def read(
        self, process: Process, path: str, done: Callable[[bytes | None, int], None], *, synced: bool = True
    ) -> None:
        """Answered after the delays of the way; the shell would repeat it until then."""
        life = process.life

        def answer() -> None:
            if self.lost:
                return
            data, version = self.get(path) if synced else (self.get_lagging(path), ABSENT)
            process.post(self._delay(process), f"read {path}", lambda: done(data, version), life=life)

        self.world.after(self._delay(process), f"store reads {path}", answer)

    def write(
        self,
        process: Process,
        path: str,
        data: bytes,
        version: int,
        done: Callable[[WriteStatus, int], None],
        *,
        created: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """The write is attempted once. created: as in `put`."""
        life, world, faults = process.life, self.world, self.faults

        def apply() -> None:
            if self.lost:
                return
            status, after = self.put(path, data, version, created)
            process.post(self._delay(process), f"wrote {path} {status.value}", lambda: done(status, after), life=life)

        if not world.chance(faults.lost_reply):
            world.after(self._delay(process), f"store writes {path}", apply)
            return
        draw = world.rng.random()
        answered = self._delay(process) + world.rng.randint(1, 60)
        if draw < faults.not_applied:
            world.count("lost reply, not applied")
        else:
            late = draw < faults.not_applied + faults.applied_late
            world.count("lost reply, applied late" if late else "lost reply, applied")
            at = answered + world.rng.randint(1, 80) if late else max(1, answered - 1)
            world.after(at, f"store writes {path}", lambda: self._put_late(path, data, version, created))
        process.post(answered, f"wrote {path} unknown", lambda: done(WriteStatus.UNKNOWN, ABSENT), life=life)

    def heal(self) -> None:
        self.faults = StoreFaults()
        self.stalled_until = 0
        self.backup_of = None
