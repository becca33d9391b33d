"""Faults in a release in Kubernetes: its pods are killed and paused, its nodes drained and cut off, with kubectl."""

import asyncio
import shlex
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.container_pause import STOPPED
from oncelog_lab.faults.control_pod import ControlPod
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import DESTRUCTIVE, NODE_KINDS, PAUSES, VICTIM_COMPONENT, Component, Fault, FaultKind
from oncelog_lab.faults.volume_damage import VolumeDamage
from oncelog_lab.kubernetes.kubectl import CommandFailed, Kubectl, run_command
from oncelog_lab.kubernetes.release import (
    Pod,
    count_components,
    nodes_within_budget,
    pause_manifest,
    pods_of,
    unhealthy_nodes,
)
from oncelog_lab.waiting import until

_KILLS = (
    FaultKind.OWNER_KILL,
    FaultKind.STORAGE_KILL,
    FaultKind.METADATA_KILL,
    FaultKind.ZOOKEEPER_KILL,
    FaultKind.REDIS_KILL,
)
_EFFECT_DEADLINE_S = 60.0
_DRAIN_TIMEOUT_S = 180.0
_NODE_COMMAND_TIMEOUT_S = 180.0
#: More frequent requests to the API server would slow down what is measured.
_CHECK_EVERY_S = 1.0
#: Time between the search for a victim and the fault, so that the search does not slow down the clients meanwhile.
_SETTLE_S = 1.0
_UPGRADE_TIMEOUT_S = 600.0
#: Larger volumes take too long to fill, and may share a disk with others.
_FILL_BYTES_MAX = 4 << 30
_FREE = "import os; s = os.statvfs('/data'); print(s.f_bavail * s.f_frsize)"
#: A file system does not give out the last bytes that it reports as free, so the steps become smaller.
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
assert at, 'no space was left to fill'
"""
_EMPTY = "import os, contextlib\nwith contextlib.suppress(FileNotFoundError):\n    os.remove('/data/chaos-filler')"
_ZOOKEEPER_STATUS = 'exec 3<>/dev/tcp/127.0.0.1/2181 && printf srvr >&3 && while IFS= read -r l <&3; do echo "$l"; done'


@dataclass(frozen=True, slots=True)
class NodeCommands:
    """Command lines of the user. {node} is replaced by the name of a node; rollout has no {node}."""

    cut: str | None = None
    recover: str | None = None
    kill: str | None = None
    start: str | None = None
    rollout: str | None = None

    def of(self, kind: FaultKind) -> tuple[str, str] | None:
        """(to inject, to recover). None unless both are given."""
        inject, recover = (self.cut, self.recover) if kind is FaultKind.NODE_CUT else (self.kill, self.start)
        return None if inject is None or recover is None else (inject, recover)


class KubernetesFaultInjector:
    """See `FaultInjector`. workload_node: gives the node of the workload's pod, which is spared."""

    def __init__(
        self,
        kubectl: Kubectl,
        release: str,
        commands: NodeCommands,
        workload_node: Callable[[], str],
        *,
        check_every_s: float = _CHECK_EVERY_S,
    ) -> None:
        self._kubectl = kubectl
        self._check_every_s = check_every_s
        self._selector = f"app.kubernetes.io/instance={release}"
        self._commands = commands
        self._workload_node = workload_node
        self._left_out: dict[FaultKind, str] = {}
        #: members of each component before the first fault
        self._before: dict[Component, int] = {}
        self._unhealthy_before: list[str] = []
        #: False with permissions in one namespace only
        self._sees_nodes = False
        self._pauses = 0
        metadata = f"{self._selector},app.kubernetes.io/component={Component.METADATA}"
        self._volume_damage = VolumeDamage(kubectl, check_every_s=check_every_s)
        self._control_pod = ControlPod(kubectl, metadata, check_every_s=check_every_s, settle_s=_SETTLE_S)

    async def close(self) -> None:
        """Remove what the run may have created beside the release. Raises CommandFailed."""
        await self._control_pod.close()

    async def counts(self) -> Mapping[Component, int]:
        pods = await self.pods()
        if not pods:
            raise LabFailed(
                f"namespace {self._kubectl.namespace} has no pod with the label {self._selector}: give --namespace and "
                "--release as shown by helm list --all-namespaces"
            )
        unready = [pod.name for pod in pods if not pod.ready]
        if unready:
            raise LabFailed(f"pods are not ready before the first fault: {', '.join(unready)}")
        for verb, resource in (("delete", "pods"), ("create", "pods"), ("create", "pods/exec"), ("get", "pods/log")):
            if not await self._kubectl.may(verb, resource):
                raise LabFailed(
                    f"permission denied: you may not {verb} {resource} in namespace {self._kubectl.namespace}"
                )
        self._before = count_components(pods)
        await self._find_left_out(pods)
        return self._before

    async def _find_left_out(self, pods: list[Pod]) -> None:
        for kind in (FaultKind.NODE_CUT, FaultKind.NODE_POWER_LOSS):
            if self._commands.of(kind) is None:
                pair = ("cut", "recover") if kind is FaultKind.NODE_CUT else ("kill", "start")
                self._left_out[kind] = "needs " + " and ".join(f"--node-{name}-command" for name in pair)
        if not await self._kubectl.may("patch", "nodes"):
            self._left_out[FaultKind.NODE_DRAIN] = "you may not patch nodes"
        if not (await self._kubectl.may("create", "services") and await self._kubectl.may("delete", "services")):
            self._left_out[FaultKind.CONTROL_POD_KILL] = "you may not create and delete services"
        if not await self._kubectl.may("delete", "persistentvolumeclaims"):
            self._left_out[FaultKind.STORAGE_LOSS] = "you may not delete persistentvolumeclaims"
        self._sees_nodes = await self._kubectl.may("list", "nodes")
        if self._sees_nodes:
            self._unhealthy_before = unhealthy_nodes(await self._kubectl.nodes())
        if len({pod.node for pod in pods}) < 2:
            self._left_out |= dict.fromkeys(NODE_KINDS, "all pods are on one node")
        storage = [pod for pod in pods if pod.component is Component.STORAGE]
        if storage:
            free = int(await self._kubectl.run("exec", storage[0].name, "--", "python3", "-c", _FREE))
            if free > _FILL_BYTES_MAX:
                self._left_out[FaultKind.VOLUME_FULL] = f"the volumes have {free >> 30} GiB free, too much to fill"

    def left_out(self) -> Mapping[FaultKind, str]:
        return self._left_out

    async def pods(self) -> list[Pod]:
        """The release's members. Raises CommandFailed."""
        return pods_of(await self._kubectl.items("pods", self._selector))

    async def unhealthy(self) -> str | None:
        try:
            ready = count_components(pod for pod in await self.pods() if pod.ready)
            nodes = unhealthy_nodes(await self._kubectl.nodes()) if self._before and self._sees_nodes else []
        except CommandFailed as error:
            return str(error)
        missing = [
            f"{count - ready.get(component, 0)} {component} not ready"
            for component, count in self._before.items()
            if ready.get(component, 0) < count
        ]
        missing += [f"node {name} is not ready" for name in nodes if name not in self._unhealthy_before]
        return ", ".join(missing) or None

    async def inject(self, fault: Fault, owner_addresses: Collection[str]) -> InjectedFault:
        try:
            if fault.kind in NODE_KINDS:
                return await self._inject_in_node(fault)
            if fault.kind is FaultKind.ROLLOUT:
                return await self._roll(fault)
            if fault.kind is FaultKind.CONTROL_POD_KILL:
                return InjectedFault(fault, *await self._control_pod.kill())
            victim = await self._victim(fault, owner_addresses)
            if fault.kind in _KILLS:
                return await self._kill(fault, victim)
            if fault.kind in PAUSES:
                return await self._pause(fault, victim)
            if fault.kind in DESTRUCTIVE:
                return await self._volume_damage.inject(fault, victim)
            return await self._fill(fault, victim)
        except LabFailed as error:
            raise FaultMissed(str(error)) from error

    async def _victim(self, fault: Fault, owner_addresses: Collection[str]) -> Pod:
        component = VICTIM_COMPONENT[fault.kind]
        ready = {pod.name: pod for pod in await self.pods() if pod.component is component and pod.ready}
        if component is Component.OWNER:
            ready = {name: pod for name, pod in ready.items() if any(map(pod.is_at, owner_addresses))} or ready
        if component is Component.ZOOKEEPER:
            leaders = [name for name in sorted(ready) if await self._leads(name)]
            ready = {name: ready[name] for name in leaders} or ready
            await asyncio.sleep(_SETTLE_S)
        if not ready:
            raise FaultMissed(f"no {component} is ready")
        return ready[fault.choose(list(ready))]

    async def _leads(self, zookeeper: str) -> bool:
        """Whether this member is the leader. False if it does not answer."""
        try:
            status = await self._kubectl.run("exec", zookeeper, "--", "bash", "-c", _ZOOKEEPER_STATUS, timeout_s=10)
        except CommandFailed:
            return False
        return "Mode: leader" in status

    async def _kill(self, fault: Fault, victim: Pod) -> InjectedFault:
        at_s = time.time()
        await self._kubectl.kill_pod(victim.name)
        await self._until_pods(
            lambda pods: victim.uid not in {pod.uid for pod in pods}, f"{victim.name} is still there"
        )
        return InjectedFault(fault, victim.name, at_s)

    async def _fill(self, fault: Fault, victim: Pod) -> InjectedFault:
        at_s = time.time()
        try:
            await self._kubectl.run("exec", victim.name, "--", "python3", "-c", _FILL)
        except CommandFailed:
            await self._kubectl.run("exec", victim.name, "--", "python3", "-c", _EMPTY)
            raise
        return InjectedFault(fault, victim.name, at_s, {"pod": victim.name})

    async def _pause(self, fault: Fault, victim: Pod) -> InjectedFault:
        self._pauses += 1
        name = f"chaos-pause-{int(time.time()):x}-{self._pauses}"
        container = await self._container_of(victim.name)
        manifest = pause_manifest(name, victim, container, fault.hold_s + _EFFECT_DEADLINE_S)
        await self._kubectl.create("pods", manifest)
        output = ""

        async def stopped() -> bool:
            nonlocal output
            try:
                output = await self._kubectl.run("logs", name)
            except CommandFailed as error:
                output = str(error)  # the pod has not started yet
            return output.startswith(STOPPED)

        try:
            await until(stopped, _EFFECT_DEADLINE_S, f"{victim.name} to stop", every_s=self._check_every_s)
        except LabFailed as error:
            await self._kubectl.kill_pod(name)
            raise FaultMissed(f"{victim.name} was not stopped: {output.strip()[-300:]}") from error
        return InjectedFault(fault, victim.name, time.time(), {"pause": name})

    async def _container_of(self, pod: str) -> dict[str, Any]:
        for item in await self._kubectl.items("pods", self._selector):
            if item["metadata"]["name"] == pod:
                container: dict[str, Any] = item["spec"]["containers"][0]
                return container
        raise FaultMissed(f"{pod} is gone")

    async def _inject_in_node(self, fault: Fault) -> InjectedFault:
        nodes = nodes_within_budget(await self.pods(), without=self._workload_node())
        if not nodes:
            raise FaultMissed("every node runs the workload, or more members than may be away at once")
        node = fault.choose(nodes)
        at_s = time.time()
        if fault.kind is FaultKind.NODE_DRAIN:
            selector = ("--pod-selector", self._selector, "--ignore-daemonsets", "--delete-emptydir-data")
            try:
                words = ("drain", node, *selector, "--timeout", f"{_DRAIN_TIMEOUT_S:.0f}s")
                await self._kubectl.run(*words, timeout_s=_DRAIN_TIMEOUT_S + 20)
            except CommandFailed:
                await self._kubectl.run("uncordon", node)
                raise
        else:
            commands = self._commands.of(fault.kind)
            assert commands is not None, "the kind is left out without commands"
            await _run_for(node, commands[0])
        return InjectedFault(fault, node, at_s, {"node": node})

    async def _roll(self, fault: Fault) -> InjectedFault:
        """Restart all pods of one component in turn, as an upgrade does. Or run the upgrade command of the user."""
        if self._commands.rollout is not None:
            at_s = time.time()
            pods = {pod.uid for pod in await self.pods()}
            await run_command(*shlex.split(self._commands.rollout), timeout_s=_UPGRADE_TIMEOUT_S)
            await self._until_pods(lambda seen: not pods & {pod.uid for pod in seen}, "some pods were not replaced")
            return InjectedFault(fault, "the whole release", at_s)
        kinds = {Component.OWNER: "statefulset", Component.STORAGE: "statefulset", Component.METADATA: "deployment"}
        component = Component(fault.choose([str(each) for each in kinds if self._before.get(each, 0) > 1]))
        selector = f"{self._selector},app.kubernetes.io/component={component}"
        at_s = time.time()
        before = {pod.uid for pod in await self.pods() if pod.component is component}
        await self._kubectl.run("rollout", "restart", kinds[component], "--selector", selector)
        await self._until_pods(
            lambda pods: not before & {pod.uid for pod in pods},
            f"some pods of {component} were not replaced",
            deadline_s=2 * _DRAIN_TIMEOUT_S,
        )
        return InjectedFault(fault, f"all pods of {component}", at_s)

    async def _until_pods(
        self, condition: Callable[[list[Pod]], bool], failure: str, deadline_s: float = _EFFECT_DEADLINE_S
    ) -> None:
        async def met() -> bool:
            await asyncio.sleep(self._check_every_s)  # before the request, which would disturb the first second
            return condition(await self.pods())

        try:
            await until(met, deadline_s, failure, every_s=0.0)
        except CommandFailed:
            raise
        except LabFailed as error:
            raise FaultMissed(failure) from error

    async def recover(self, injected: InjectedFault) -> None:
        kind, detail = injected.fault.kind, injected.detail
        if kind in PAUSES:
            await self._kubectl.delete_pod(detail["pause"])
        elif kind in DESTRUCTIVE:
            await self._volume_damage.recover(injected)
        elif kind is FaultKind.VOLUME_FULL:
            await self._kubectl.run("exec", detail["pod"], "--", "python3", "-c", _EMPTY)
        elif kind is FaultKind.NODE_DRAIN:
            await self._kubectl.run("uncordon", detail["node"])
        elif kind in NODE_KINDS:
            commands = self._commands.of(kind)
            assert commands is not None, "the fault was injected"
            await _run_for(detail["node"], commands[1])


async def _run_for(node: str, command: str) -> None:
    words = [word.replace("{node}", node) for word in shlex.split(command)]
    await run_command(*words, timeout_s=_NODE_COMMAND_TIMEOUT_S)
