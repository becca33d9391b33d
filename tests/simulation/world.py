"""The scheduler: a heap of (tick, order, delivery), one source of chance, and a hash over everything that happened.

A tick is a millisecond. Nothing here waits: time jumps to the next delivery. Everything that happens in a run happens
in `step`, so a run is its seed.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from zlib import crc32

Delivery = Callable[[], None]


class Draws(random.Random):
    """Chance. `randint` draws as the standard one does, without its checks: a run draws at each message."""

    def randint(self, a: int, b: int) -> int:
        """A number of a..b."""
        width = b - a + 1
        if width <= 0:
            raise ValueError(f"empty range {a}..{b}")
        bits = width.bit_length()
        drawn = self.getrandbits(bits)
        while drawn >= width:
            drawn = self.getrandbits(bits)
        return a + drawn


class World:
    """One run's time and chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Draws(seed)
        self.now = 0
        self.steps = 0
        #: CRC over (tick, label) of every step
        self.trace = 0
        #: what the last step was
        self.label = ""
        #: {what happened: how often}; faults and verdicts, for the coverage of a sweep
        self.counts: dict[str, int] = {}
        self._heap: list[tuple[int, int, str, Delivery]] = []
        self._order = 0

    def after(self, delay: int, label: str, do: Delivery) -> None:
        """Schedule the delivery `delay` ticks from now, behind others that are due at the same tick."""
        self._order += 1
        heappush(self._heap, (self.now + delay, self._order, label, do))

    def step(self) -> bool:
        """Perform the next delivery. False if there is none."""
        if not self._heap:
            return False
        self.now, _, self.label, do = heappop(self._heap)
        self.steps += 1
        self.trace = crc32(f"{self.now}{self.label}".encode(), self.trace)
        do()
        return True

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def chance(self, probability: float) -> bool:
        """Draw; a probability of 0 draws nothing, so that a fault switched off leaves no trace in the schedule."""
        return probability > 0 and self.rng.random() < probability


class Process:
    """A process that starts, pauses, crashes and restarts. Messages to an earlier life are lost."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        #: counts the lives; odd while alive
        self.life = 0
        self.paused = False
        #: effects until it crashes in the middle of a step, -1: it does not
        self.fuse = -1
        self._backlog: list[Delivery] = []

    @property
    def alive(self) -> bool:
        return self.life % 2 == 1

    def start(self) -> None:
        self.life += 1
        self.fuse = -1

    def crash(self) -> None:
        self.life += 1
        self.paused = False
        self._backlog.clear()

    def pause(self) -> None:
        self.paused = True

    def wake(self) -> None:
        """Deliver messages that arrived meanwhile, in order, before all others."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        life = self.life
        for do in backlog:
            if self.life == life:
                do()

    def post(self, delay: int, label: str, do: Delivery, *, life: int | None = None) -> None:
        """Deliver the message to this life of the process."""
        due = self.life if life is None else life
        label = f"{self.name} {label}"

        def deliver() -> None:
            if self.life != due or not due % 2:
                return
            if self.paused:
                self._backlog.append(do)
            else:
                do()

        self.world.after(delay, label, deliver)

    def burn(self) -> bool:
        """One more effect was performed. Returns whether the process crashed now, between two effects of one step."""
        if self.fuse < 0:
            return False
        self.fuse -= 1
        if self.fuse >= 0:
            return False
        self.world.count("crash inside a step")
        self.crash()
        return True
