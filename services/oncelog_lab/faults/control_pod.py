"""The control pod: a pod without clients, killed like a member of the release.

Its kill measures what any death and start of a pod costs on this cluster, because nodes, network and disks are shared.
The pause after the kill of a member counts against the log only as far as it is longer than the pause after this kill.
"""

import asyncio
import time

from oncelog_lab.kubernetes.kubectl import Kubectl
from oncelog_lab.kubernetes.release import CONTROL_POD_LABEL, control_pod_manifest, control_pod_service, is_ready
from oncelog_lab.waiting import until


class ControlPod:
    """Created by the first kill, removed by `close`. It has the image, the requests and the start-up of a metadata
    service, and a Kubernetes Service in front of it.

    check_every_s, settle_s: see `KubernetesFaultInjector`. Each method raises CommandFailed or LabFailed.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        metadata_selector: str,
        *,
        check_every_s: float,
        settle_s: float,
        ready_deadline_s: float = 60.0,
    ) -> None:
        self._kubectl = kubectl
        self._metadata_selector = metadata_selector
        self._check_every_s = check_every_s
        self._settle_s = settle_s
        self._ready_deadline_s = ready_deadline_s
        self._service = f"chaos-control-pod-{int(time.time()):x}"
        self._created = 0
        self._has_service = self._has_pod = False

    async def kill(self) -> tuple[str, float]:
        """Kill the pod by force and create the next one. Returns the name, and the time of the kill."""
        if not self._has_pod:
            await self._create()
        await self._ready()
        await asyncio.sleep(self._settle_s)
        victim, at_s = self._name, time.time()
        await self._kubectl.kill_pod(victim)
        self._has_pod = False
        await self._create()
        await self._ready()
        return victim, at_s

    @property
    def _name(self) -> str:
        return f"{self._service}-{self._created}"

    async def _create(self) -> None:
        model = (await self._kubectl.items("pods", self._metadata_selector))[0]
        self._created += 1
        if not self._has_service:
            await self._kubectl.create("services", control_pod_service(self._service))
            self._has_service = True
        await self._kubectl.create("pods", control_pod_manifest(self._name, self._service, model))
        self._has_pod = True

    async def _ready(self) -> None:
        async def ready() -> bool:
            return is_ready(await self._kubectl.pod(self._name))

        what = f"the control pod {self._name} to become ready"
        await until(ready, self._ready_deadline_s, what, every_s=self._check_every_s)

    async def close(self) -> None:
        """Also removes what a request created whose response was lost."""
        if self._created:
            await self._kubectl.delete("pods,services", f"{CONTROL_POD_LABEL}={self._service}")
