"""What the chaos run receives from its workload, which is another process: the events of `events`, line by line.

The clock of the workload may be that of another machine. Each line limits how far that clock is ahead: the smallest
difference between the arrival of a line and its own time. All times here are converted to the clock of this process.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from oncelog_lab.acknowledgements import AckPause

#: A client with an acknowledgement within this time is healthy.
_IDLE_MS_MAX = 1_500.0

OnEvent = Callable[[dict[str, Any]], None]


class RunningWorkload(Protocol):
    """A workload, as a local process or a pod."""

    async def end(self) -> None:
        """Tell the workload to close its clients, to read everything back, and to print the verdict."""

    def ended(self) -> bool:
        """Whether all its output was read."""


@dataclass(slots=True)
class Heartbeat:
    """The last beat. See `events`."""

    at_s: float = 0.0
    acked: int = 0
    steady_gap_ms_p999: float | None = None
    #: {client: ms since its last acknowledgement}
    idle_ms: dict[str, float] = field(default_factory=dict)


class WorkloadConnection:
    """The state of the workload by its events. `take` receives its lines. `on_event` is called for all but beats."""

    def __init__(self, on_event: OnEvent, clock: Callable[[], float] = time.time) -> None:
        self.beat = Heartbeat()
        self.pauses: list[AckPause] = []
        self.takeovers: list[dict[str, Any]] = []
        self.ready: dict[str, Any] | None = None
        self.verdict: dict[str, Any] | None = None
        self._routes: dict[str, str] = {}
        self._on_event = on_event
        self._clock = clock
        self._ahead_s = float("inf")
        self._newest_at_s = 0.0

    @property
    def owner_addresses(self) -> tuple[str, ...]:
        """Of the owners of the workload's topics."""
        return tuple(sorted(set(self._routes.values())))

    def take(self, line: bytes | str) -> None:
        """Take one line. Other output, a log line or a traceback, becomes an event "output"."""
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event:
            text = line.decode(errors="replace") if isinstance(line, bytes) else line
            self._on_event({"event": "output", "text": text.rstrip()})
            return
        if event["at_s"] <= self._newest_at_s:
            return  # the log of a pod is followed again from its start
        self._newest_at_s = float(event["at_s"])
        self._ahead_s = min(self._ahead_s, self._clock() - self._newest_at_s)
        event["at_s"] = self._newest_at_s + self._ahead_s
        self._take_event(event)

    def _take_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "beat":
                self._take_beat(event)
                return
            case "ready":
                self.ready = event
            case "verdict":
                self.verdict = event
            case "takeover":
                self.takeovers.append(event)
            case "route":
                self._routes[event["topic"]] = event["address"]
        self._on_event(event)

    def _take_beat(self, event: dict[str, Any]) -> None:
        at_s = float(event["at_s"])
        clients: dict[str, dict[str, Any]] = event["clients"]
        idle_ms = {name: each["idle_ms"] for name, each in clients.items()}
        self.beat = Heartbeat(at_s, int(event["acked"]), event["steady_gap_ms_p999"], idle_ms)
        for name, each in clients.items():
            self.pauses += [AckPause(name, ms, at_s - ago_ms / 1000) for ms, ago_ms in each["gaps_ms"]]

    def silent(self, since_s: float) -> str | None:
        """The clients without an acknowledgement since then, or without a recent one. None if there are none."""
        if self.beat.at_s <= since_s:
            return "no beat of the workload since"
        idle = [
            name
            for name, idle_ms in sorted(self.beat.idle_ms.items())
            if idle_ms > _IDLE_MS_MAX or self.beat.at_s - idle_ms / 1000 <= since_s
        ]
        return f"no acknowledgement yet: {', '.join(idle)}" if idle else None
