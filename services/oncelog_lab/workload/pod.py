"""The workload as a pod beside the release: it is a client inside the cluster, and no fault disconnects it."""

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from oncelog_lab.failures import LabFailed
from oncelog_lab.kubernetes.kubectl import CommandFailed, Kubectl
from oncelog_lab.kubernetes.release import workload_manifest
from oncelog_lab.waiting import until
from oncelog_lab.workload.connection import WorkloadConnection

_START_DEADLINE_S = 120.0
_CHECK_EVERY_S = 0.5
_LINE_BYTES_MAX = 1024 * 1024
_END = "import os, signal; os.kill(1, signal.SIGTERM)"
_OVER = ("Succeeded", "Failed")


class PodWorkload:
    """See `RunningWorkload`. Created by `running`."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self._kubectl = kubectl
        self._name = name
        self._over = False

    @classmethod
    @asynccontextmanager
    async def running(
        cls, kubectl: Kubectl, release: str, arguments: Sequence[str], link: WorkloadConnection, nodes: list[str]
    ) -> "AsyncIterator[PodWorkload]":
        """Create the pod and follow its log. The pod is deleted at the end of the block. nodes: receives its node.

        Raises LabFailed.
        """
        workload = cls(kubectl, f"chaos-workload-{int(time.time()):x}")
        pod, service = await workload._model(release)
        manifest = workload_manifest(workload._name, pod, service, kubectl.namespace, arguments)
        await kubectl.create("pods", manifest)
        listening = None
        try:
            nodes.append(await workload._started())
            listening = asyncio.create_task(workload._listen(link))
            yield workload
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await kubectl.kill_pod(workload._name)

    async def _model(self, release: str) -> tuple[dict[str, Any], str]:
        """A metadata pod, as a model of image and Secrets, and the name of its Service."""
        selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=metadata"
        pods = await self._kubectl.items("pods", selector)
        services = [
            str(each["metadata"]["name"])
            for each in await self._kubectl.items("services", selector)
            if each["spec"].get("clusterIP") != "None"
        ]
        if not pods or not services:
            raise LabFailed(f"release {release} has no metadata service")
        return pods[0], services[0]

    async def _started(self) -> str:
        """Returns the name of its node."""
        status: dict[str, Any] = {}

        async def node() -> str | None:
            nonlocal status
            pod = await self._kubectl.pod(self._name)
            status = pod["status"]
            return str(pod["spec"]["nodeName"]) if status.get("phase") in {"Running", *_OVER} else None

        try:
            return await until(node, _START_DEADLINE_S, "the workload's pod", every_s=_CHECK_EVERY_S)
        except CommandFailed:
            raise
        except LabFailed as error:
            states = [each.get("state") for each in status.get("containerStatuses", [])]
            raise LabFailed(f"the workload's pod {self._name} did not start: {states or status}") from error

    async def _listen(self, link: WorkloadConnection) -> None:
        """Follow its log. After a broken stream the log is read again from its start; the link drops known lines."""
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
                async for line in process.stdout:
                    link.take(line)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
            try:
                self._over = (
                    link.verdict is not None or (await self._kubectl.pod(self._name))["status"].get("phase") in _OVER
                )
            except CommandFailed:
                self._over = False  # no answer: ask again
            await asyncio.sleep(_CHECK_EVERY_S)

    async def end(self) -> None:
        await self._kubectl.run("exec", self._name, "--", "python3", "-c", _END)

    def ended(self) -> bool:
        return self._over
