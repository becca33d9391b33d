"""A pod that serves nobody, killed as the others are: what any such pod's death and start cost on this cluster.

Machines, network and disks are shared with whatever starts there. A pause behind the kill of a member is the log's
doing only as far as it is longer than the one behind this kill.
"""

import asyncio
import time

from oncelog.lab.chaos.api_server import CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl
from oncelog.lab.chaos.release import BYSTANDER_LABEL, bystander_manifest, bystander_service, is_ready

_READY_DEADLINE_S = 60.0


class Bystander:
    """Made by the first strike, as like a metadata service as one that serves nobody can be; `close` removes it.

    It has the image, the requests and the start of one, and a Service in front of it.

    look_every_s, settle_s: see `KubernetesTarget`. Each method raises CommandFailed.
    """

    def __init__(self, kubectl: Kubectl, metadata_selector: str, *, look_every_s: float, settle_s: float) -> None:
        self._kubectl = kubectl
        self._metadata_selector = metadata_selector
        self._look_every_s = look_every_s
        self._settle_s = settle_s
        self._service = f"chaos-bystander-{int(time.time()):x}"
        self._tried = 0
        self._served = self._stands = False

    async def kill(self) -> tuple[str, float]:
        """Kill it by force and put the next one in its place. Returns its name, and when it was killed."""
        if not self._stands:
            await self._put()
        await self._ready()
        await asyncio.sleep(self._settle_s)
        victim, at_s = self._name, time.time()
        await self._kubectl.kill_pod(victim)
        self._stands = False
        await self._put()
        await self._ready()
        return victim, at_s

    @property
    def _name(self) -> str:
        return f"{self._service}-{self._tried}"

    async def _put(self) -> None:
        model = (await self._kubectl.items("pods", self._metadata_selector))[0]
        self._tried += 1
        if not self._served:
            await self._kubectl.create("services", bystander_service(self._service))
            self._served = True
        await self._kubectl.create("pods", bystander_manifest(self._name, self._service, model))
        self._stands = True

    async def _ready(self) -> None:
        ends_at = time.monotonic() + _READY_DEADLINE_S
        while not is_ready(pod := await self._kubectl.pod(self._name)):
            if time.monotonic() > ends_at:
                phase = pod["status"].get("phase")
                raise CommandFailed(f"the bystander's pod {self._name} does not get ready: it is {phase}")
            await asyncio.sleep(self._look_every_s)

    async def close(self) -> None:
        """Also what a request may have made whose answer was lost."""
        if self._tried:
            await self._kubectl.delete("pods,services", f"{BYSTANDER_LABEL}={self._service}")
