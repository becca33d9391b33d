"""The bystander: there is always one to kill, each kill is followed by a start as a member's is, and none is left."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.lab.chaos.api_server import ApiServer, CommandFailed
from oncelog.lab.chaos.bystander import Bystander
from oncelog.lab.chaos.kubectl import Kubectl
from oncelog.lab.chaos.kubernetes_target import Commands, KubernetesTarget
from oncelog.lab.chaos.release import BYSTANDER_LABEL
from oncelog.lab.chaos.schedule import Kind
from oncelog.lab.chaos.settings import KubernetesSettings, kubernetes_run

pytestmark = pytest.mark.asyncio

MODEL = {"spec": {"containers": [{"image": "oncelog:1", "resources": {"requests": {"cpu": "100m"}}}]}}


class FakeKubectl(Kubectl):
    """Notes what is done. starts_after: looks before a pod is ready; None: never. fails: whose making fails next."""

    def __init__(self, starts_after: int | None = 2) -> None:
        super().__init__("here", ApiServer.__new__(ApiServer))
        self.done: list[tuple[str, str]] = []
        self.pods: dict[str, int] = {}
        self.services: list[str] = []
        self.fails = ""
        self._starts_after = starts_after

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        assert (kind, selector) == ("pods", "component=metadata")
        return [MODEL]

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if kind == self.fails:
            self.fails = ""
            raise CommandFailed(f"no {kind} now")
        if kind == "services":
            self.services.append(name)
            return
        self.done.append(("made", name))
        self.pods[name] = 0

    async def pod(self, name: str) -> dict[str, Any]:
        self.pods[name] += 1
        ready = self._starts_after is not None and self.pods[name] > self._starts_after
        conditions = [{"type": "Ready", "status": str(ready)}]
        return {"status": {"phase": "Running", "conditions": conditions}}

    async def kill_pod(self, name: str) -> None:
        self.done.append(("killed", name))
        del self.pods[name]

    async def delete(self, kinds: str, selector: str) -> None:
        assert kinds == "pods,services"
        label, _, service = selector.partition("=")
        assert label == BYSTANDER_LABEL
        self.pods = {name: looks for name, looks in self.pods.items() if not name.startswith(service)}
        self.services.remove(service)


def bystander(kubectl: Kubectl) -> Bystander:
    return Bystander(kubectl, "component=metadata", look_every_s=0.0, settle_s=0.0)


async def test_each_kill_is_followed_by_a_start_as_a_members_is() -> None:
    """One that is only killed would cost less than a member's, and the control would flatter nobody but itself."""
    kubectl = FakeKubectl()
    control = bystander(kubectl)
    first, first_at_s = await control.kill()
    second, second_at_s = await control.kill()
    assert first != second
    assert first_at_s < second_at_s
    [third] = kubectl.pods
    assert kubectl.done == [
        ("made", first),
        ("killed", first),
        ("made", second),
        ("killed", second),
        ("made", third),
    ]
    assert len(kubectl.services) == 1, "one for all"
    await control.close()
    assert kubectl.pods == {}
    assert kubectl.services == []


@pytest.mark.parametrize("what", ["services", "pods"])
async def test_one_request_that_fails_costs_one_strike(what: str) -> None:
    """Before the first strike, or between a kill and the pod in its place: the next strike finds one to kill again."""
    kubectl = FakeKubectl()
    control = bystander(kubectl)
    kubectl.fails = what
    with pytest.raises(CommandFailed, match=f"no {what} now"):
        await control.kill()
    await control.kill()
    kubectl.fails = "pods"
    with pytest.raises(CommandFailed, match="no pods now"):
        await control.kill()
    assert kubectl.pods == {}
    victim, _ = await control.kill()
    assert ("killed", victim) in kubectl.done
    assert (len(kubectl.pods), len(kubectl.services)) == (1, 1)
    await control.close()
    assert (kubectl.pods, kubectl.services) == ({}, [])


async def test_who_never_struck_leaves_nothing_and_asks_nothing() -> None:
    """Most runs."""
    kubectl = FakeKubectl()
    await bystander(kubectl).close()
    assert (kubectl.done, kubectl.services) == ([], [])


async def test_one_that_does_not_get_ready_is_no_strike_and_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full node, say: the fault counts as missed, in words."""
    monkeypatch.setattr("oncelog.lab.chaos.bystander._READY_DEADLINE_S", 0.0)
    kubectl = FakeKubectl(starts_after=None)
    control = bystander(kubectl)
    with pytest.raises(CommandFailed, match=r"chaos-bystander-.* does not get ready: it is Running"):
        await control.kill()
    await control.close()
    assert kubectl.pods == {}


@pytest.mark.parametrize("verb", ["create", "delete", ""])
async def test_who_may_make_no_services_is_told_before_the_run(verb: str) -> None:
    """Named, the kind is an error then; a Service that cannot be deleted would be left behind."""

    class Limited(FakeKubectl):
        async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
            labels = {"app.kubernetes.io/component": "metadata"}
            ready = [{"type": "Ready", "status": "True"}]
            pod = {"metadata": {"name": "m", "uid": "1", "labels": labels}, "status": {"conditions": ready}}
            return [{**pod, "spec": {"nodeName": "n1"}}]

        async def may(self, asked: str, resource: str) -> bool:
            return resource.startswith("pods") or (resource == "services" and asked != verb)

    target = KubernetesTarget(Limited(), "logs", Commands(), lambda: "")
    await target.counts()
    assert (Kind.BYSTANDER_KILL in target.left_out()) == bool(verb)


async def test_what_cannot_be_cleared_away_costs_no_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, and the verdict of the run with it."""

    @asynccontextmanager
    async def reached() -> AsyncIterator[ApiServer]:
        yield ApiServer.__new__(ApiServer)

    async def refused(_self: KubernetesTarget) -> None:
        raise CommandFailed("services is forbidden")

    async def verdict() -> str:
        async with kubernetes_run(KubernetesSettings("here", "logs", 1, Commands())):
            return "the verdict"

    monkeypatch.setattr(ApiServer, "reached", reached)
    monkeypatch.setattr(KubernetesTarget, "close", refused)
    assert await verdict() == "the verdict"
    assert "delete them by hand: services is forbidden" in caplog.text
