"""The network: delay, loss, duplication, reordering, one-way cuts, clogs; and streams, which keep order and break.

Names of places, not of processes, have links: a cut stays when a process behind it is started anew.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.world import Delivery, Process, World


@dataclass(slots=True)
class NetworkFaults:
    """Probabilities per message; delays in ticks."""

    delay_max: int = 6
    slow: float = 0.0
    slow_max: int = 400
    drop: float = 0.0
    duplicate: float = 0.0
    #: a message on a stream meets a broken connection
    break_stream: float = 0.0


class Network:
    """Carries messages to processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = NetworkFaults()
        #: {(from, to): tick at which it heals}
        self.cuts: dict[tuple[str, str], int] = {}
        #: {(from, to): tick at which everything held back arrives}
        self.clogs: dict[tuple[str, str], int] = {}

    def cut(self, source: str, target: str) -> bool:
        return self.cuts.get((source, target), 0) > self.world.now

    def delay(self, source: str, target: str) -> int:
        """Ticks until a message that arrives does."""
        world, faults = self.world, self.faults
        delay = world.rng.randint(1, faults.delay_max)
        if world.chance(faults.slow):
            world.count("message delayed")
            delay += world.rng.randint(1, faults.slow_max)
        held = self.clogs.get((source, target), 0) - world.now
        if held > 0:
            world.count("message held by a clog")
            delay += held
        return delay

    def send(self, source: str, target: Process, label: str, do: Delivery) -> bool:
        """Send one message on no stream. Returns whether it will arrive at the place (not: at a living process)."""
        world, faults = self.world, self.faults
        if self.cut(source, target.name):
            world.count("message cut off")
            return False
        if world.chance(faults.drop):
            world.count("message dropped")
            return False
        target.post(self.delay(source, target.name), label, do)
        if world.chance(faults.duplicate):
            world.count("message duplicated")
            target.post(self.delay(source, target.name), label, do)
        return True

    def heal(self) -> None:
        self.faults = NetworkFaults()
        self.cuts.clear()
        self.clogs.clear()


class Stream:
    """A connection between two processes: ordered both ways until it breaks, and then nothing more arrives.

    broken: {process: what to do there, once it notices}.
    """

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self.network = network
        self.ends = (client, server)
        self.lives = (client.life, server.life)
        self.open = True
        self.on_broken: dict[str, Callable[[], None]] = {}
        #: {target: the latest tick something arrives there}
        self._latest: dict[str, int] = {}

    def send(self, source: Process, label: str, do: Delivery) -> None:
        """Queue behind all earlier messages in this direction."""
        if not self.open:
            return
        world, network = self.network.world, self.network
        target = self.ends[1] if source is self.ends[0] else self.ends[0]
        if network.cut(source.name, target.name) or world.chance(network.faults.break_stream):
            world.count("stream broken")
            self.sever()
            return
        due = max(world.now + network.delay(source.name, target.name), self._latest.get(target.name, 0))
        self._latest[target.name] = due
        life = self.lives[self.ends.index(target)]

        def deliver() -> None:
            if self.open:
                do()

        target.post(due - world.now, label, deliver, life=life)

    def sever(self, *, at_once: bool = False) -> None:
        """Break the stream. Both ends notice it, each after a delay of its own.

        at_once: both notice it after one tick, without a draw, so that the runs of other seeds do not change.
        """
        if not self.open:
            return
        self.open = False
        for process, life in zip(self.ends, self.lives, strict=True):
            notice = self.on_broken.get(process.name)
            if notice is not None:
                delay = 1 if at_once else self.network.delay("network", process.name)
                process.post(delay, "notices a broken stream", notice, life=life)
