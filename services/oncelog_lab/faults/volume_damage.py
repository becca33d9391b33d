"""Faults that destroy copies in Kubernetes: the claim of a storage pod is deleted with the pod, or bits are flipped.

A StatefulSet creates the claim again together with the pod. A pod that was created before the old claim was gone waits
for it in vain, and is deleted once more.
"""

import asyncio
import json
import time
from typing import Any

from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import Fault, FaultKind
from oncelog_lab.faults.replacement import FORMER, Replacement
from oncelog_lab.kubernetes.kubectl import CommandFailed, Kubectl
from oncelog_lab.kubernetes.release import Pod
from oncelog_lab.waiting import until

_EFFECT_DEADLINE_S = 120.0
_WORKLOADS = "app.kubernetes.io/component=chaos"
_WORKLOAD_PREFIX = "chaos-workload-"
#: Runs in the pod of the workload, which has the address of REST and the credentials.
_GET = """
import asyncio, json, os, sys
from pathlib import Path
from oncelog_lab.access import ClusterAccess
def file(name):
    return Path(os.environ[name]) if name in os.environ else None
async def main():
    env = os.environ
    access = ClusterAccess(
        env["ONCELOG_URL"], env["ONCELOG_ADMIN_URL"], file("ONCELOG_TOKEN_FILE"), file("ONCELOG_TLS_CA_FILE")
    )
    rest = access.rest()
    answer = await rest.call("GET", sys.argv[1])
    await rest.close()
    print(json.dumps(answer.body if answer.ok else None))
asyncio.run(main())
"""
#: Runs in the storage pod.
_FLIP = """
import sys
from pathlib import Path
from oncelog_lab.faults.bit_rot import flip_bits
(segments,) = [path for path in Path("/data").rglob("segments") if path.is_dir()]
print(flip_bits(segments, int(sys.argv[1])))
"""


class VolumeDamage:
    """check_every_s: see `KubernetesFaultInjector`. stuck_s: after this time a pod that waits for a claim that is gone
    is deleted. Methods raise LabFailed."""

    def __init__(self, kubectl: Kubectl, *, check_every_s: float, stuck_s: float = 10.0) -> None:
        self._kubectl = kubectl
        self._stuck_s = stuck_s
        self._check_every_s = check_every_s
        self._replacement = Replacement(self._get, check_every_s=check_every_s)

    async def inject(self, fault: Fault, victim: Pod) -> InjectedFault:
        """Wait until the node may be replaced, then destroy copies of it."""
        detail = await self._replacement.permitted(victim.is_at)
        at_s = time.time()
        if fault.kind is FaultKind.STORAGE_LOSS:
            await self._lose_volume(victim)
        else:
            await self._kubectl.run("exec", victim.name, "--", "python3", "-c", _FLIP, str(fault.pick))
            await self._kubectl.kill_pod(victim.name)
        return InjectedFault(fault, victim.name, at_s, detail)

    async def recover(self, injected: InjectedFault) -> None:
        """Wait until all copies are there again."""
        lost = injected.fault.kind is FaultKind.STORAGE_LOSS

        def is_at(address: str) -> bool:
            return address.partition(":")[0].partition(".")[0] == injected.victim

        await self._replacement.restored(is_at, not_as=injected.detail[FORMER] if lost else "")

    async def _lose_volume(self, victim: Pod) -> None:
        spec = (await self._kubectl.pod(victim.name))["spec"]
        claims = [
            each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"] if "persistentVolumeClaim" in each
        ]
        if len(claims) != 1:
            raise FaultMissed(f"{victim.name} has {len(claims)} volume claims instead of one")
        former = await self._claim(claims[0])
        await self._kubectl.run("delete", "persistentvolumeclaim", claims[0], "--wait=false")
        await self._kubectl.kill_pod(victim.name)
        killed_s = time.monotonic()

        async def renewed() -> bool:
            nonlocal killed_s
            claim = await self._claim(claims[0])
            if claim not in {"", former}:
                return True
            if time.monotonic() - killed_s > self._stuck_s:
                killed_s = time.monotonic()
                await self._kubectl.kill_pod(victim.name)
            return False

        await until(renewed, _EFFECT_DEADLINE_S, f"a new volume for {victim.name}", every_s=self._check_every_s)

    async def _claim(self, name: str) -> str:
        """The uid of a claim; empty if there is none."""
        found = await self._kubectl.items("persistentvolumeclaims")
        return next((str(each["metadata"]["uid"]) for each in found if each["metadata"]["name"] == name), "")

    async def _get(self, path: str) -> Any:
        names = [
            str(pod["metadata"]["name"])
            for pod in await self._kubectl.items("pods", _WORKLOADS)
            if pod.get("status", {}).get("phase") == "Running"
        ]
        workloads = [name for name in names if name.startswith(_WORKLOAD_PREFIX)]
        if not workloads:
            raise LabFailed("the pod of the workload is gone")
        try:
            answer = await self._kubectl.run("exec", workloads[-1], "--", "python3", "-c", _GET, path)
        except CommandFailed:
            await asyncio.sleep(self._check_every_s)
            return None
        return json.loads(answer)
