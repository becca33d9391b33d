"""Whom a fault takes in Kubernetes: an owner that serves the load, whatever address it tells."""

from typing import Any

import pytest

from oncelog.lab.chaos import kubernetes_target
from oncelog.lab.chaos.api_server import ApiServer, CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl
from oncelog.lab.chaos.kubernetes_target import Commands, KubernetesTarget
from oncelog.lab.chaos.schedule import Fault, Kind
from oncelog.lab.chaos.target import Scene

pytestmark = pytest.mark.asyncio


def owner(number: int) -> dict[str, Any]:
    """A pod as the API shows it."""
    return {
        "metadata": {
            "name": f"oncelog-owner-{number}",
            "uid": f"{number}",
            "labels": {"app.kubernetes.io/component": "owner"},
        },
        "spec": {"nodeName": "n1"},
        "status": {"podIP": f"10.0.0.{number}", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class FakeKubectl(Kubectl):
    """Five owners; who is killed is gone."""

    def __init__(self) -> None:
        super().__init__("here", ApiServer.__new__(ApiServer))
        self.owners = [owner(number) for number in range(5)]

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        assert (kind, selector) == ("pods", "app.kubernetes.io/instance=logs")
        return self.owners

    async def kill_pod(self, name: str) -> None:
        self.owners = [each for each in self.owners if each["metadata"]["name"] != name]


@pytest.mark.parametrize("address", ["10.0.0.3:6650", "oncelog-owner-3.oncelog-owner-headless.here.svc:6650"])
async def test_owner_that_serves_the_load_is_the_victim(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the seed picks: one that serves nothing would be missed by nobody."""
    monkeypatch.setattr(kubernetes_target, "_LOOK_EVERY_S", 0.0)
    for pick in range(5):
        target = KubernetesTarget(FakeKubectl(), "logs", Commands(), lambda: "")
        struck = await target.strike(Fault(Kind.OWNER_KILL, pick), Scene((address,)))
        assert struck.victim == "oncelog-owner-3"


class Namespaced(FakeKubectl):
    """Whoever asks has every right in the namespace, and none beyond it."""

    async def may(self, verb: str, resource: str) -> bool:
        return resource != "nodes"

    async def nodes(self) -> list[dict[str, Any]]:
        raise CommandFailed("nodes is forbidden at the cluster scope")


async def test_rights_in_one_namespace_are_enough_to_see_that_all_is_healed() -> None:
    """Nodes may not be listed: what they are is left out, and no fault waits for it for ever."""
    target = KubernetesTarget(Namespaced(), "logs", Commands(), lambda: "")
    await target.counts()
    assert Kind.NODE_DRAIN in target.left_out()
    assert await target.ailing() is None
