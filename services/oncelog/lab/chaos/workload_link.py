"""The runner's ear at the workload: a process of its own whose lines are taken apart as they come.

The workload's clock may be another machine's. Each line gives a bound on how far it is ahead: the smallest difference
between arrival and its own time is taken, and every time is told in this process's clock.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oncelog.lab.chaos.target import ChaosFailed, Scene

#: A client that had an acknowledgement within this time is well.
_IDLE_MS_MAX = 1_500.0

Heard = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Pause:
    """A client was without an acknowledgement for so long, until `ended_at_s`."""

    client: str
    ms: float
    ended_at_s: float

    def overlaps(self, from_s: float, to_s: float) -> bool:
        return self.ended_at_s > from_s and self.ended_at_s - self.ms / 1000 < to_s


@dataclass(slots=True)
class Heartbeat:
    """The clients as the newest beat tells of them."""

    at_s: float = 0.0
    acked: int = 0
    #: over all pauses so far of the clients that stay open
    steady_gap_ms_p999: float | None = None
    #: {client: ms since its last acknowledgement}
    idle_ms: dict[str, float] = field(default_factory=dict)


class WorkloadLink:
    """Everything that the workload has said. `take` is given its lines; `heard` is told of events beside beats."""

    def __init__(self, heard: Heard, clock: Callable[[], float] = time.time) -> None:
        self.beat = Heartbeat()
        self.pauses: list[Pause] = []
        self.takeovers: list[dict[str, Any]] = []
        self.ready: dict[str, Any] | None = None
        self.verdict: dict[str, Any] | None = None
        self._routes: dict[str, str] = {}
        self._heard = heard
        self._clock = clock
        self._ahead_s = float("inf")
        self._newest_at_s = 0.0

    @property
    def scene(self) -> Scene:
        return Scene(tuple(sorted(set(self._routes.values()))))

    def take(self, line: bytes | str) -> None:
        """One line. What is no line of the workload is passed on as it is: a log, or a trace of a bug."""
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or "event" not in said:
            text = line.decode(errors="replace") if isinstance(line, bytes) else line
            self._heard({"event": "said", "text": text.rstrip()})
            return
        if said["at_s"] <= self._newest_at_s:
            return  # a stream that was taken up again repeats itself
        self._newest_at_s = float(said["at_s"])
        self._ahead_s = min(self._ahead_s, self._clock() - self._newest_at_s)
        said["at_s"] = self._newest_at_s + self._ahead_s
        self._take(said)

    def _take(self, said: dict[str, Any]) -> None:
        match said["event"]:
            case "beat":
                self._take_beat(said)
                return
            case "ready":
                self.ready = said
            case "verdict":
                self.verdict = said
            case "takeover":
                self.takeovers.append(said)
            case "route":
                self._routes[said["topic"]] = said["address"]
        self._heard(said)

    def _take_beat(self, said: dict[str, Any]) -> None:
        at_s = float(said["at_s"])
        clients: dict[str, dict[str, Any]] = said["clients"]
        idle_ms = {name: each["idle_ms"] for name, each in clients.items()}
        self.beat = Heartbeat(at_s, int(said["acked"]), said["steady_gap_ms_p999"], idle_ms)
        for name, each in clients.items():
            self.pauses += [Pause(name, ms, at_s - ago_ms / 1000) for ms, ago_ms in each["gaps_ms"]]

    def silent(self, since_s: float) -> str | None:
        """Which clients have had no acknowledgement since then, or not lately; None: all go on."""
        if self.beat.at_s <= since_s:
            return "no beat of the workload since"
        idle = [
            name
            for name, idle_ms in sorted(self.beat.idle_ms.items())
            if idle_ms > _IDLE_MS_MAX or self.beat.at_s - idle_ms / 1000 <= since_s
        ]
        return f"no acknowledgement yet: {', '.join(idle)}" if idle else None

    async def listen(self, stream: asyncio.StreamReader) -> None:
        """Take every line until the stream ends."""
        async for line in stream:
            self.take(line)

    async def until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Return when it holds. Raises ChaosFailed."""
        ends_at = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > ends_at:
                raise ChaosFailed(f"{what}: not within {deadline_s:.0f} s")
            await asyncio.sleep(0.05)
