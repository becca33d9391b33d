"""A release in Kubernetes as a target: its pods are killed and paused, its nodes drained and cut, with kubectl."""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.lab.chaos.api_server import CommandFailed
from oncelog.lab.chaos.bystander import Bystander
from oncelog.lab.chaos.container_pause import STOPPED
from oncelog.lab.chaos.kubectl import Kubectl, run_command
from oncelog.lab.chaos.release import (
    Pod,
    count_parts,
    nodes_within_budget,
    pause_manifest,
    pods_of,
    unwell_nodes,
)
from oncelog.lab.chaos.schedule import NODE_KINDS, VICTIM_PART, Fault, Kind, Part
from oncelog.lab.chaos.target import ChaosFailed, FaultMissed, Scene, Struck

_KILLS = (Kind.OWNER_KILL, Kind.STORAGE_KILL, Kind.METADATA_KILL, Kind.ZOOKEEPER_KILL, Kind.REDIS_KILL)
_PAUSES = (Kind.OWNER_PAUSE, Kind.STORAGE_PAUSE)
_FELT_DEADLINE_S = 60.0
_DRAIN_TIMEOUT_S = 180.0
_NODE_COMMAND_TIMEOUT_S = 180.0
#: Each look costs a process that asks the API server: more of them would be felt by what is measured.
_LOOK_EVERY_S = 1.0
#: What was done to find a victim has passed before the strike, or its pause would be counted.
_SETTLE_S = 1.0
_UPGRADE_TIMEOUT_S = 600.0
#: Only a volume that can be filled in a moment is filled: what is larger is a disk that others share.
_FILL_BYTES_MAX = 4 << 30
_FREE = "import os; s = os.statvfs('/data'); print(s.f_bavail * s.f_frsize)"
#: The last bytes that a file system calls free are its own: what it refuses is asked for by halves.
_FILL = f"""
import errno, os
s = os.statvfs('/data')
assert s.f_bavail * s.f_frsize <= {_FILL_BYTES_MAX}, 'the volume is too large to fill'
f, at, step = os.open('/data/chaos-filler', os.O_CREAT | os.O_WRONLY, 0o600), 0, 1 << 28
while step >= 4096:
    try:
        os.posix_fallocate(f, at, step)
        at += step
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        step //= 2
assert at, 'nothing was left to fill'
"""
_EMPTY = "import os, contextlib\nwith contextlib.suppress(FileNotFoundError):\n    os.remove('/data/chaos-filler')"
_ASK_ZOOKEEPER = 'exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && while IFS= read -r l <&3; do echo "$l"; done'


@dataclass(frozen=True, slots=True)
class Commands:
    """Command lines of the user's, those for nodes with {node}; None: there is none. rollout: of the whole release."""

    cut: str | None = None
    mend: str | None = None
    kill: str | None = None
    start: str | None = None
    rollout: str | None = None

    def of(self, kind: Kind) -> tuple[str, str] | None:
        """(strike, mend); None unless both are given."""
        strike, mend = (self.cut, self.mend) if kind is Kind.NODE_CUT else (self.kill, self.start)
        return None if strike is None or mend is None else (strike, mend)


class KubernetesTarget:
    """workload_node: tells where the workload's pod runs; that node is spared."""

    def __init__(self, kubectl: Kubectl, release: str, commands: Commands, workload_node: Callable[[], str]) -> None:
        self._kubectl = kubectl
        self._selector = f"app.kubernetes.io/instance={release}"
        self._commands = commands
        self._workload_node = workload_node
        self._left_out: dict[Kind, str] = {}
        #: as they were at the beginning
        self._whole: dict[Part, int] = {}
        self._unwell_before: list[str] = []
        #: whether nodes may be listed; with rights in one namespace they may not
        self._sees_nodes = False
        self._pauses = 0
        metadata = f"{self._selector},app.kubernetes.io/component={Part.METADATA}"
        self._bystander = Bystander(kubectl, metadata, look_every_s=_LOOK_EVERY_S, settle_s=_SETTLE_S)

    async def close(self) -> None:
        """Remove what strikes may have left beside the release. Raises CommandFailed."""
        await self._bystander.close()

    # --- what is there ------------------------------------------------------------------------------------------------

    async def counts(self) -> Mapping[Part, int]:
        pods = await self.pods()
        if not pods:
            raise ChaosFailed(
                f"namespace {self._kubectl.namespace} has no pod with {self._selector}: name them with --namespace and "
                "--release, as `helm list --all-namespaces` shows them"
            )
        unready = [pod.name for pod in pods if not pod.ready]
        if unready:
            raise ChaosFailed(f"not ready before anything was struck: {', '.join(unready)}")
        for verb, resource in (("delete", "pods"), ("create", "pods"), ("create", "pods/exec"), ("get", "pods/log")):
            if not await self._kubectl.may(verb, resource):
                raise ChaosFailed(f"you may not {verb} {resource} in namespace {self._kubectl.namespace}: ask for it")
        self._whole = count_parts(pods)
        await self._find_means(pods)
        return self._whole

    async def _find_means(self, pods: list[Pod]) -> None:
        for kind in (Kind.NODE_CUT, Kind.NODE_POWER_LOSS):
            if self._commands.of(kind) is None:
                pair = ("cut", "mend") if kind is Kind.NODE_CUT else ("kill", "start")
                self._left_out[kind] = "needs " + " and ".join(f"--node-{name}-command" for name in pair)
        if not await self._kubectl.may("patch", "nodes"):
            self._left_out[Kind.NODE_DRAIN] = "you may not patch nodes"
        if not (await self._kubectl.may("create", "services") and await self._kubectl.may("delete", "services")):
            self._left_out[Kind.BYSTANDER_KILL] = "you may not create and delete services"
        self._sees_nodes = await self._kubectl.may("list", "nodes")
        if self._sees_nodes:
            self._unwell_before = unwell_nodes(await self._kubectl.nodes())
        if len({pod.node for pod in pods}) < 2:
            self._left_out |= dict.fromkeys(NODE_KINDS, "all pods are on one node")
        storage = [pod for pod in pods if pod.part is Part.STORAGE]
        if storage:
            free = int(await self._kubectl.run("exec", storage[0].name, "--", "python3", "-c", _FREE))
            if free > _FILL_BYTES_MAX:
                self._left_out[Kind.VOLUME_FULL] = f"the volumes have {free >> 30} GiB free, too much to fill"

    def left_out(self) -> Mapping[Kind, str]:
        return self._left_out

    async def pods(self) -> list[Pod]:
        """The release's members. Raises CommandFailed."""
        return pods_of(await self._kubectl.items("pods", self._selector))

    async def ailing(self) -> str | None:
        try:
            ready = count_parts(pod for pod in await self.pods() if pod.ready)
            unwell = unwell_nodes(await self._kubectl.nodes()) if self._whole and self._sees_nodes else []
        except CommandFailed as error:
            return str(error)
        missing = [
            f"{count - ready.get(part, 0)} {part} not ready"
            for part, count in self._whole.items()
            if ready.get(part, 0) < count
        ]
        missing += [f"node {name} is not as it was" for name in unwell if name not in self._unwell_before]
        return ", ".join(missing) or None

    # --- striking -----------------------------------------------------------------------------------------------------

    async def strike(self, fault: Fault, scene: Scene) -> Struck:
        try:
            if fault.kind in NODE_KINDS:
                return await self._strike_node(fault)
            if fault.kind is Kind.ROLLOUT:
                return await self._roll(fault)
            if fault.kind is Kind.BYSTANDER_KILL:
                return Struck(fault, *await self._bystander.kill())
            victim = await self._victim(fault, scene)
            if fault.kind in _KILLS:
                return await self._kill(fault, victim)
            if fault.kind in _PAUSES:
                return await self._pause(fault, victim)
            return await self._fill(fault, victim)
        except CommandFailed as error:
            raise FaultMissed(str(error)) from error

    async def _victim(self, fault: Fault, scene: Scene) -> Pod:
        part = VICTIM_PART[fault.kind]
        there = {pod.name: pod for pod in await self.pods() if pod.part is part and pod.ready}
        if part is Part.OWNER:
            serving = {name for name, pod in there.items() if any(map(pod.is_at, scene.owner_addresses))}
            there = {name: pod for name, pod in there.items() if name in serving} or there
        if part is Part.ZOOKEEPER:
            leaders = [name for name in sorted(there) if await self._leads(name)]
            there = {name: there[name] for name in leaders} or there
            await asyncio.sleep(_SETTLE_S)
        if not there:
            raise FaultMissed(f"no {part} is ready")
        return there[fault.choose(list(there))]

    async def _leads(self, zookeeper: str) -> bool:
        """Whether this member says that it leads; one that cannot be asked does not."""
        try:
            said = await self._kubectl.run("exec", zookeeper, "--", "bash", "-c", _ASK_ZOOKEEPER, timeout_s=10)
        except CommandFailed:
            return False
        return "Mode: leader" in said

    async def _kill(self, fault: Fault, victim: Pod) -> Struck:
        at_s = time.time()
        await self._kubectl.kill_pod(victim.name)
        await self._felt(lambda pods: victim.uid not in {pod.uid for pod in pods}, f"{victim.name} is still there")
        return Struck(fault, victim.name, at_s)

    async def _fill(self, fault: Fault, victim: Pod) -> Struck:
        at_s = time.time()
        try:
            await self._kubectl.run("exec", victim.name, "--", "python3", "-c", _FILL)
        except CommandFailed:
            await self._kubectl.run("exec", victim.name, "--", "python3", "-c", _EMPTY)
            raise
        return Struck(fault, victim.name, at_s, {"pod": victim.name})

    async def _pause(self, fault: Fault, victim: Pod) -> Struck:
        self._pauses += 1
        name = f"chaos-pause-{int(time.time()):x}-{self._pauses}"
        container = await self._container_of(victim.name)
        manifest = pause_manifest(name, victim, container, fault.hold_s + _FELT_DEADLINE_S)
        await self._kubectl.create("pods", manifest)
        said = ""
        ends_at = time.monotonic() + _FELT_DEADLINE_S
        while time.monotonic() < ends_at:
            try:
                said = await self._kubectl.run("logs", name)
            except CommandFailed as error:
                said = str(error)  # it has not started yet
            if said.startswith(STOPPED):
                return Struck(fault, victim.name, time.time(), {"pause": name})
            await asyncio.sleep(_LOOK_EVERY_S)
        await self._kubectl.kill_pod(name)
        raise FaultMissed(f"{victim.name} was not stopped: {said.strip()[-300:]}")

    async def _container_of(self, pod: str) -> dict[str, Any]:
        for item in await self._kubectl.items("pods", self._selector):
            if item["metadata"]["name"] == pod:
                container: dict[str, Any] = item["spec"]["containers"][0]
                return container
        raise FaultMissed(f"{pod} is gone")

    async def _strike_node(self, fault: Fault) -> Struck:
        nodes = nodes_within_budget(await self.pods(), without=self._workload_node())
        if not nodes:
            raise FaultMissed("every node carries more than may be lost at once, or the workload")
        node = fault.choose(nodes)
        at_s = time.time()
        if fault.kind is Kind.NODE_DRAIN:
            selector = ("--pod-selector", self._selector, "--ignore-daemonsets", "--delete-emptydir-data")
            try:
                words = ("drain", node, *selector, "--timeout", f"{_DRAIN_TIMEOUT_S:.0f}s")
                await self._kubectl.run(*words, timeout_s=_DRAIN_TIMEOUT_S + 20)
            except CommandFailed:
                await self._kubectl.run("uncordon", node)
                raise
        else:
            commands = self._commands.of(fault.kind)
            assert commands is not None, "left out otherwise"
            await _run_for(node, commands[0])
        return Struck(fault, node, at_s, {"node": node})

    async def _roll(self, fault: Fault) -> Struck:
        """Restart every pod of one part in turn, as an upgrade does; or run the user's own upgrade, of all parts."""
        if self._commands.rollout is not None:
            at_s = time.time()
            pods = {pod.uid for pod in await self.pods()}
            await run_command(*shlex.split(self._commands.rollout), timeout_s=_UPGRADE_TIMEOUT_S)
            await self._felt(lambda seen: not pods & {pod.uid for pod in seen}, "some pods are as old as before")
            return Struck(fault, "all of it", at_s)
        kinds = {Part.OWNER: "statefulset", Part.STORAGE: "statefulset", Part.METADATA: "deployment"}
        part = Part(fault.choose([str(each) for each in kinds if self._whole.get(each, 0) > 1]))
        selector = f"{self._selector},app.kubernetes.io/component={part}"
        at_s = time.time()
        before = {pod.uid for pod in await self.pods() if pod.part is part}
        await self._kubectl.run("rollout", "restart", kinds[part], "--selector", selector)
        await self._felt(
            lambda pods: not before & {pod.uid for pod in pods},
            f"{part} is not all new",
            deadline_s=2 * _DRAIN_TIMEOUT_S,
        )
        return Struck(fault, f"all of {part}", at_s)

    async def _felt(
        self, condition: Callable[[list[Pod]], bool], failure: str, deadline_s: float = _FELT_DEADLINE_S
    ) -> None:
        ends_at = time.monotonic() + deadline_s
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)  # first: what is felt most happens in this second
            if condition(await self.pods()):
                return
            if time.monotonic() > ends_at:
                raise FaultMissed(failure)

    # --- mending ------------------------------------------------------------------------------------------------------

    async def mend(self, struck: Struck) -> None:
        kind, detail = struck.fault.kind, struck.detail
        if kind in _PAUSES:
            await self._kubectl.delete_pod(detail["pause"])
        elif kind is Kind.VOLUME_FULL:
            await self._kubectl.run("exec", detail["pod"], "--", "python3", "-c", _EMPTY)
        elif kind is Kind.NODE_DRAIN:
            await self._kubectl.run("uncordon", detail["node"])
        elif kind in NODE_KINDS:
            commands = self._commands.of(kind)
            assert commands is not None, "it struck"
            await _run_for(detail["node"], commands[1])


async def _run_for(node: str, command: str) -> None:
    words = [word.replace("{node}", node) for word in shlex.split(command)]
    await run_command(*words, timeout_s=_NODE_COMMAND_TIMEOUT_S)
