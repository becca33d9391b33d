"""The workload as a pod beside the release: it sees what clients in the cluster see, and no fault cuts it off."""

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from oncelog.lab.chaos.api_server import CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl
from oncelog.lab.chaos.release import workload_manifest
from oncelog.lab.chaos.target import ChaosFailed
from oncelog.lab.chaos.workload_link import WorkloadLink

_START_DEADLINE_S = 120.0
_AGAIN_S = 0.5
_LINE_BYTES_MAX = 1024 * 1024
_END = "import os, signal; os.kill(1, signal.SIGTERM)"
_OVER = ("Succeeded", "Failed")


class PodWorkload:
    """Made by `running`."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self._kubectl = kubectl
        self._name = name
        self._over = False

    @classmethod
    @asynccontextmanager
    async def running(
        cls, kubectl: Kubectl, release: str, arguments: Sequence[str], link: WorkloadLink, place: list[str]
    ) -> "AsyncIterator[PodWorkload]":
        """Create it and follow what it says; deleted at the end of the block. place: is given the node it runs on.

        Raises ChaosFailed.
        """
        workload = cls(kubectl, f"chaos-workload-{int(time.time()):x}")
        pod, service = await workload._model(release)
        manifest = workload_manifest(workload._name, pod, service, kubectl.namespace, arguments)
        await kubectl.create("pods", manifest)
        listening = None
        try:
            place.append(await workload._started())
            listening = asyncio.create_task(workload._listen(link))
            yield workload
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await kubectl.kill_pod(workload._name)

    async def _model(self, release: str) -> tuple[dict[str, Any], str]:
        """A metadata pod, whose image and Secrets are the workload's, and the Service in front of it."""
        selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=metadata"
        pods = await self._kubectl.items("pods", selector)
        services = [
            str(each["metadata"]["name"])
            for each in await self._kubectl.items("services", selector)
            if each["spec"].get("clusterIP") != "None"
        ]
        if not pods or not services:
            raise ChaosFailed(f"release {release} has no metadata service")
        return pods[0], services[0]

    async def _started(self) -> str:
        ends_at = time.monotonic() + _START_DEADLINE_S
        while True:
            pod = await self._kubectl.pod(self._name)
            if pod["status"].get("phase") in {"Running", *_OVER}:
                return str(pod["spec"]["nodeName"])
            if time.monotonic() > ends_at:
                states = [each.get("state") for each in pod["status"].get("containerStatuses", [])]
                raise ChaosFailed(f"the workload's pod {self._name} does not start: {states or pod['status']}")
            await asyncio.sleep(_AGAIN_S)

    async def _listen(self, link: WorkloadLink) -> None:
        """Follow its log; a stream that breaks is taken up from the beginning, and the link drops what it knows."""
        while not self._over:
            process = await asyncio.create_subprocess_exec(
                *self._kubectl.words("logs", "--follow", self._name),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=_LINE_BYTES_MAX,
            )
            assert process.stdout is not None
            try:
                await link.listen(process.stdout)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            try:
                self._over = (
                    link.verdict is not None or (await self._kubectl.pod(self._name))["status"].get("phase") in _OVER
                )
            except CommandFailed:
                self._over = False  # whether it is there could not be asked: again in a moment
            await asyncio.sleep(_AGAIN_S)

    async def end(self) -> None:
        await self._kubectl.run("exec", self._name, "--", "python3", "-c", _END)

    def ended(self) -> bool:
        return self._over
