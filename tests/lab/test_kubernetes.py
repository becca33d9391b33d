"""The fault injector for Kubernetes: its victims, its control pod, and its errors."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.control_pod import ControlPod
from oncelog_lab.faults.kinds import Fault, FaultKind
from oncelog_lab.faults.kubernetes_injector import KubernetesFaultInjector, NodeCommands
from oncelog_lab.faults.replacement import FORMER
from oncelog_lab.faults.volume_damage import VolumeDamage
from oncelog_lab.kubernetes.kubectl import CommandFailed, Kubectl
from oncelog_lab.kubernetes.release import CONTROL_POD_LABEL, pods_of

pytestmark = pytest.mark.asyncio

READY = [{"type": "Ready", "status": "True"}]
#: A kubectl whose proxy refuses every request but one, which ends it.
PROXY = """#!{python}
import json, os, sys
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer

class Proxy(BaseHTTPRequestHandler):
    def answer(self):
        if self.path.endswith("/deadly"):
            os._exit(1)
        data = json.dumps({{"kind": "Status", "message": "you may not"}}).encode()
        self.send_response(403)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_DELETE = answer
    address_string = lambda self: "a client"
    log_message = lambda self, *_: None

server = UnixStreamServer(sys.argv[3], Proxy)
print("Starting to serve", flush=True)
server.serve_forever()
"""


def pod(component: str, number: int = 0) -> dict[str, Any]:
    """A pod as the API shows it."""
    labels = {"app.kubernetes.io/component": component}
    return {
        "metadata": {"name": f"oncelog-{component}-{number}", "uid": f"{component}{number}", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"image": "oncelog:1"}]},
        "status": {"podIP": f"10.0.0.{number}", "conditions": READY},
    }


class FakeKubectl(Kubectl):
    """fails: the next creation of this kind fails. never_ready: no created pod becomes ready."""

    def __init__(self, *pods: dict[str, Any], denied: tuple[str, str] = ("", "")) -> None:
        super().__init__("here", httpx.AsyncClient())
        self.listed = list(pods)
        self.done: list[tuple[str, str]] = []
        self.created: dict[str, str] = {}
        self.fails = ""
        self.never_ready = False
        self._denied = denied

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        return self.listed

    async def may(self, verb: str, resource: str) -> bool:
        return resource != "nodes" and (verb, resource) != self._denied

    async def nodes(self) -> list[dict[str, Any]]:
        raise CommandFailed("nodes is forbidden at the cluster scope")

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> None:
        if kind == self.fails:
            self.fails = ""
            raise CommandFailed(f"no {kind} now")
        name = manifest["metadata"]["name"]
        self.created[name] = kind
        self.done += [("created", name)] if kind == "pods" else []

    async def pod(self, name: str) -> dict[str, Any]:
        return {"status": {"conditions": [] if self.never_ready else READY}}

    async def kill_pod(self, name: str) -> None:
        self.done.append(("killed", name))
        self.created.pop(name, None)
        self.listed = [each for each in self.listed if each["metadata"]["name"] != name]

    async def delete(self, kinds: str, selector: str) -> None:
        assert (kinds, selector.partition("=")[0]) == ("pods,services", CONTROL_POD_LABEL)
        self.created.clear()


def injector(kubectl: Kubectl) -> KubernetesFaultInjector:
    return KubernetesFaultInjector(kubectl, "logs", NodeCommands(), lambda: "", check_every_s=0.0)


@pytest.mark.parametrize("address", ["10.0.0.3:6650", "oncelog-owner-3.oncelog-owner-headless.here.svc:6650"])
async def test_victim_is_an_owner_of_the_workloads_topics(address: str) -> None:
    """Whatever the seed picks: clients would not notice the loss of another owner."""
    for pick in range(5):
        target = injector(FakeKubectl(*(pod("owner", number) for number in range(5))))
        injected = await target.inject(Fault(FaultKind.OWNER_KILL, pick), (address,))
        assert injected.victim == "oncelog-owner-3"


async def test_permissions_in_one_namespace_are_enough() -> None:
    """Without permission to list nodes, faults of nodes are left out, and the cluster still counts as healthy."""
    target = injector(FakeKubectl(pod("owner")))
    await target.counts()
    assert FaultKind.NODE_DRAIN in target.left_out()
    assert await target.unhealthy() is None


@pytest.mark.parametrize("verb", ["create", "delete", ""])
async def test_control_pod_is_left_out_without_permission_for_services(verb: str) -> None:
    """A Service that cannot be deleted would be left over."""
    target = injector(FakeKubectl(pod("metadata"), denied=(verb, "services")))
    await target.counts()
    assert (FaultKind.CONTROL_POD_KILL in target.left_out()) == bool(verb)


def control_pod(kubectl: Kubectl) -> ControlPod:
    return ControlPod(kubectl, "component=metadata", check_every_s=0.0, settle_s=0.0, ready_deadline_s=0.0)


async def test_each_kill_of_the_control_pod_is_followed_by_a_start() -> None:
    """As for a member of the release: otherwise the control would be cheaper than what it is compared with."""
    kubectl = FakeKubectl(pod("metadata"))
    control = control_pod(kubectl)
    (first, first_at_s), (second, second_at_s) = await control.kill(), await control.kill()
    assert first_at_s < second_at_s
    assert kubectl.done[:-1] == [
        *(("created", first), ("killed", first)),
        *(("created", second), ("killed", second)),
    ]
    assert list(kubectl.created.values()).count("services") == 1
    await control.close()
    assert kubectl.created == {}


@pytest.mark.parametrize("kind", ["services", "pods"])
async def test_failed_request_costs_one_kill_of_the_control_pod(kind: str) -> None:
    """Before the first kill, or between a kill and the next pod: the next kill finds a pod again."""
    kubectl = FakeKubectl(pod("metadata"))
    control = control_pod(kubectl)
    for fails in (kind, "pods"):
        kubectl.fails = fails
        with pytest.raises(CommandFailed, match=f"no {fails} now"):
            await control.kill()
        victim, _ = await control.kill()
        assert ("killed", victim) in kubectl.done


async def test_control_pod_that_is_not_ready_is_a_missed_fault() -> None:
    """For example on a full node."""
    kubectl = FakeKubectl(pod("metadata"))
    kubectl.never_ready = True
    with pytest.raises(LabFailed, match=r"chaos-control-pod-.* to become ready"):
        await control_pod(kubectl).kill()
    kubectl.fails = "services"
    with pytest.raises(FaultMissed, match="no services now"):
        await injector(kubectl).inject(Fault(FaultKind.CONTROL_POD_KILL, 0), ())


def install(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program named kubectl, first on the PATH."""
    path = directory / "kubectl"
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


async def test_failed_request_is_an_error_and_never_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request, and a proxy that has ended."""
    install(tmp_path, PROXY.format(python=sys.executable), monkeypatch)
    async with Kubectl.connected("here") as kubectl:
        with pytest.raises(CommandFailed, match=r"DELETE .*/pods/two answers 403: you may not"):
            await kubectl.kill_pod("two")
        with pytest.raises(CommandFailed, match=r"pods/deadly: no response from the API server"):
            await kubectl.pod("deadly")


async def test_kubectl_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first fault."""
    install(tmp_path, f"#!{sys.executable}\nimport sys; sys.exit('no such context')", monkeypatch)
    with pytest.raises(CommandFailed, match="`kubectl proxy` failed: no such context"):
        await Kubectl.connected("here").__aenter__()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(CommandFailed, match="kubectl is not on the PATH"):
        await Kubectl.connected("here").__aenter__()


@pytest.mark.parametrize(
    ("output", "code", "answer"),
    [("yes", 0, True), ("no", 1, False), ("no - no RBAC policy matched", 1, False), ("", 1, None)],
)
async def test_permission_is_read_from_standard_output_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, answer: bool | None
) -> None:
    """kubectl prints warnings on standard error. No answer at all is an error and not a missing permission."""
    warning = "Warning: resource 'nodes' is not namespace scoped"
    install(tmp_path, f'#!/bin/sh\necho "{output}"\necho "{warning}" >&2\nexit {code}\n', monkeypatch)
    kubectl = Kubectl("logs", httpx.AsyncClient())
    if answer is None:
        with pytest.raises(CommandFailed, match="not namespace scoped"):
            await kubectl.may("list", "nodes")
    else:
        assert await kubectl.may("list", "nodes") is answer


class FakeVolumes(FakeKubectl):
    """A storage pod with one claim, which Kubernetes creates again. stuck: so often the pod is created too early."""

    def __init__(self, *, stuck: int = 0) -> None:
        storage = pod("storage", 1)
        storage["metadata"]["name"] = "oncelog-storage-1"
        workload = {"metadata": {"name": "chaos-workload-1"}, "status": {"phase": "Running"}}
        super().__init__(storage)
        self.answers = {
            "/admin/v2/storage-nodes": NODES,
            "/admin/v2/storage/nodes/aa/may-replace": {"may_replace": True},
        }
        self._workload = workload
        self._stuck = stuck
        self._claim = "first"

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        if kind == "persistentvolumeclaims":
            return [{"metadata": {"name": "data-1", "uid": self._claim}}] if self._claim else []
        return [self._workload] if selector.endswith("=chaos") else await super().items(kind, selector)

    async def pod(self, name: str) -> dict[str, Any]:
        return {"spec": {"volumes": [{"name": "tmp"}, {"persistentVolumeClaim": {"claimName": "data-1"}}]}}

    async def run(self, *words: str, timeout_s: float = 0.0) -> str:
        if words[:2] == ("exec", "chaos-workload-1"):
            return json.dumps(self.answers[words[-1]])
        self.done.append((" ".join(words[:2]), words[2]))
        self._claim = "" if words[0] == "delete" else self._claim
        return ""

    async def kill_pod(self, name: str) -> None:
        self.done.append(("killed", name))
        self._stuck -= 1
        if self._stuck < 0 and not self._claim:
            self._claim = "second"


NODES = [{"incarnation": "aa", "address": "oncelog-storage-1.oncelog-storage.here.svc:6650", "live": True}]


@pytest.mark.parametrize("stuck", [0, 1])
async def test_storage_loss_deletes_the_claim_and_the_pod(stuck: int) -> None:
    """A pod that was created before the old claim was gone is deleted once more."""
    kubectl = FakeVolumes(stuck=stuck)
    (victim,) = pods_of(await kubectl.items("pods"))
    damage = VolumeDamage(kubectl, check_every_s=0.0, stuck_s=0.0)
    injected = await damage.inject(Fault(FaultKind.STORAGE_LOSS, 0), victim)
    assert injected.victim == "oncelog-storage-1"
    assert injected.detail[FORMER] == "aa"
    killed = ("killed", "oncelog-storage-1")
    assert kubectl.done == [("delete persistentvolumeclaim", "data-1"), *[killed] * (1 + stuck)]


async def test_bit_rot_damages_a_storage_pod_and_restarts_it() -> None:
    """The claim stays, and the fault ends when all copies are there again."""
    kubectl = FakeVolumes()
    target = injector(kubectl)
    injected = await target.inject(Fault(FaultKind.BIT_ROT, 0), ())
    assert [words for words, _ in kubectl.done] == ["exec oncelog-storage-1", "killed"]
    await target.recover(injected)
