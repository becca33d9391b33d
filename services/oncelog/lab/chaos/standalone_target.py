"""A cluster of `oncelog standalone` as a target: its processes are killed, or stopped for a while, by signals."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncelog.lab.chaos.schedule import VICTIM_PART, Fault, Kind, Part
from oncelog.lab.chaos.target import FaultMissed, Scene, Struck

_KILLS = (Kind.OWNER_KILL, Kind.STORAGE_KILL, Kind.METADATA_KILL)
_PAUSES = (Kind.OWNER_PAUSE, Kind.STORAGE_PAUSE)
_GONE_DEADLINE_S = 5.0
_LOOK_EVERY_S = 0.02


class StandaloneTarget:
    """data: the cluster's directory, whose standalone.json tells of its processes."""

    def __init__(self, data: Path) -> None:
        self._status_path = data / "standalone.json"
        #: how many of each part there were at the beginning
        self._whole: Counter[str] = Counter()

    async def counts(self) -> Mapping[Part, int]:
        self._whole = Counter(str(process["role"]) for process in self._processes())
        return {part: self._whole[part] for part in Part if self._whole[part]}

    def left_out(self) -> Mapping[Kind, str]:
        return {kind: "needs Kubernetes" for kind in Kind if kind not in (*_KILLS, *_PAUSES)}

    async def strike(self, fault: Fault, scene: Scene) -> Struck:
        part = VICTIM_PART[fault.kind]
        serving = {str(each["name"]): each for each in self._processes() if each["role"] == part and each["pid"]}
        if part is Part.OWNER:
            # One that serves the workload: the others would feel nothing that a client sees.
            busy = {n: p for n, p in serving.items() if p["serving"].get("address") in scene.owner_addresses}
            serving = busy or serving
        if not serving:
            raise FaultMissed(f"no {part} runs")
        victim = fault.choose(list(serving))
        pid = int(serving[victim]["pid"])
        at_s = time.time()
        stops = fault.kind in _PAUSES
        try:
            os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
        except ProcessLookupError as error:
            raise FaultMissed(f"{victim} was down already") from error
        await _felt(pid, "T" if stops else "", victim)
        return Struck(fault, victim, at_s, {"pid": str(pid)})

    async def mend(self, struck: Struck) -> None:
        if struck.fault.kind in _PAUSES:
            try:
                os.kill(int(struck.detail["pid"]), signal.SIGCONT)
            except ProcessLookupError:
                return  # it was started again meanwhile, which is as good

    async def ailing(self) -> str | None:
        serving = Counter(str(process["role"]) for process in self._processes() if process["state"] == "serving")
        missing = self._whole - serving
        return ", ".join(f"{count} {role} not serving" for role, count in sorted(missing.items())) or None

    def _processes(self) -> list[dict[str, Any]]:
        status: dict[str, Any] = json.loads(self._status_path.read_text())
        return list(status["processes"])


async def _felt(pid: int, state: str, victim: str) -> None:
    """Return when the process is in this state, or gone for the empty one. Raises FaultMissed."""
    ends_at = time.monotonic() + _GONE_DEADLINE_S
    while time.monotonic() < ends_at:
        now = _state_of(pid)
        if now == state or (not state and now in {"", "Z", "X"}):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    raise FaultMissed(f"{victim} went on as before")


def _state_of(pid: int) -> str:
    """One letter of /proc, empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
