"""What a run needs in each of the two places where it can happen: the target, and how its workload is started."""

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from oncelog.lab.chaos.api_server import ApiServer, CommandFailed
from oncelog.lab.chaos.kubectl import Kubectl
from oncelog.lab.chaos.kubernetes_target import Commands, KubernetesTarget
from oncelog.lab.chaos.local_cluster import standalone_cluster
from oncelog.lab.chaos.local_workload import LocalWorkload
from oncelog.lab.chaos.pod_workload import PodWorkload
from oncelog.lab.chaos.session import StartWorkload
from oncelog.lab.chaos.standalone_target import StandaloneTarget
from oncelog.lab.chaos.target import Target

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Which release, and the user's commands for what kubectl cannot do."""

    namespace: str
    release: str
    seed: int
    commands: Commands


@asynccontextmanager
async def standalone_run(data: Path | None, seed: int) -> AsyncIterator[tuple[Target, StartWorkload]]:
    """A cluster of processes of this machine, ended with the run. data: where; None: a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="oncelog-chaos-") as folder:
        directory = (data or Path(folder)) / "cluster"
        directory.mkdir(parents=True, exist_ok=True)
        async with standalone_cluster(directory) as access:
            arguments = ("--url", access.url, "--admin-url", access.admin_url, "--seed", str(seed))
            yield StandaloneTarget(directory), lambda link: LocalWorkload.running(arguments, link)


@asynccontextmanager
async def kubernetes_run(settings: KubernetesSettings) -> AsyncIterator[tuple[Target, StartWorkload]]:
    """A release of the current kube context."""
    async with ApiServer.reached() as api:
        kubectl = Kubectl(settings.namespace, api)
        place: list[str] = []
        target = KubernetesTarget(kubectl, settings.release, settings.commands, lambda: place[-1] if place else "")
        arguments = ("--seed", str(settings.seed))
        try:
            yield target, lambda link: PodWorkload.running(kubectl, settings.release, arguments, link, place)
        finally:
            try:
                await target.close()
            except CommandFailed as error:  # the verdict is worth more than what is left behind
                logger.warning("pods and Services of chaos may be left, delete them by hand: %s", error)
